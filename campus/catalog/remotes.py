"""A building that forwards to another MCP server, at a URL or started as a command. Its tools stay listed while it is down."""

import logging
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TextIO, cast

import anyio
import mcp_types
from fastmcp import FastMCP
from fastmcp.client import Client
from fastmcp.client.transports import ClientTransport, SSETransport, StdioTransport, StreamableHttpTransport
from fastmcp.mcp_config import RemoteMCPServer, StdioMCPServer
from fastmcp.server import create_proxy
from fastmcp.server.context import Context
from fastmcp.server.providers.proxy import ProxyClient, ProxyProvider, ProxyTool
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.versions import VersionSpec
from mcp import MCPError
from pydantic import ValidationError

from campus.backoff import RECONNECTS
from campus.catalog import bounded_lines
from campus.catalog.bounds import bounded_clients
from campus.catalog.stderr import LabelledStderr, given_secrets
from campus.config import ANSWER_LIMIT
from campus.errors import CampusError, LoadError, Unreachable
from campus.observability import origin_of, redacted
from campus.problems import upstream_unavailable
from twins import Problem, invalid_result, is_refusal

PROBE_SECONDS = 60.0
"""How long a later attempt waits: a command may have to download itself first."""
BETWEEN_PROBES = 15.0
ANSWER_MILLISECONDS = 120_000
"""How long an answer may take where `timeout` says nothing; in milliseconds, as in clients' configurations."""
NOT_AS_LISTED = re.compile(r"Invalid structured content returned by tool|Tool .* has an output schema but did not return")
"""What mcp's client raises for a result that it compared itself."""
EMPTY_PAGE = 8_000
"""What a page of a list counts besides its tools, in bytes: a list of empty pages ends too."""
NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,128}")
LONGER = bounded_lines.TOO_LONG.partition("{")[0]
"""How an error says that an answer was too long: mcp passes on nothing of an exception but its text."""
INVALID_ARGUMENTS = re.compile(r"(Error executing tool \S+: )?\d+ validation errors? for |Input validation error|MCP error -32602")
"""How servers of FastMCP, the Python SDK and the TypeScript SDK begin the text of an error for invalid arguments."""
CRASH = re.compile(r"Error (executing|calling) tool \S+")
"""The whole text of an error for a crash, of which these servers tell callers nothing more."""
RESERVED_CODES = range(-32768, -31999)
"""The codes of JSON-RPC errors that are no tool's own."""
log = logging.getLogger(__name__)


class ProxiedServer:
    """One remote server, and whether it answered the last time. `address` is where it is, without parts that may be secret."""

    def __init__(self, name: str, target: Mapping[str, Any], *, answer_limit: int = ANSWER_LIMIT) -> None:
        """`answer_limit` are the bytes that it may send in one call, and for its whole list of tools."""
        self.name = name
        self.answer_limit = answer_limit
        self.address = origin_of(str(target["url"])) if "url" in target else f"the command {target['command']!r}"
        self.is_probed = target.get("keep_alive", True)  # otherwise a probe would start the command each time
        self.failure: str | None = None
        self._fails = anyio.Event()
        self.rejection: str | None = None
        """Why its tools cannot be served although it answers."""
        self.seconds: float = (target.get("timeout") or ANSWER_MILLISECONDS) / 1000
        # a caller's key, payment and other headers are meant for campus, and are not passed on
        transport = transport_to(name, target, limit=answer_limit)
        backend: ProxyClient[Any] = ProxyClient(transport, mode="auto", timeout=self.seconds, forward_incoming_headers=False)
        self._connect = create_proxy(backend, name=name).client_factory
        self.tools = ForeignTools(self._connect, self)

    def findings(self) -> Sequence[str]:
        """Why it cannot be reached, or why its tools cannot be served; empty while all is well."""
        hint = "; the log has what it wrote to stderr" if self.address.startswith("the command") else ""
        found = [f"{self.address} cannot be reached ({self.failure}{hint}); campus keeps trying"] if self.failure else []
        return [*found, *([self.rejection] if self.rejection else [])]

    def reject(self, error: Exception) -> str:
        """Note why its tools cannot be served, log it if it is new, and return it."""
        foreseen = isinstance(error, CampusError)
        fault = f"its tools cannot be served ({type(error).__name__}); the log has the cause"
        reason = str(error) if foreseen else f"building {self.name!r}: {fault}"
        if reason != self.rejection:
            cause = None if foreseen else error
            log.error("building cannot be opened", exc_info=cause, extra={"building": self.name, "reason": str(error)[:1_000]})
        self.rejection = reason
        return reason

    def mark_unreachable(self, error: BaseException) -> None:
        """Note that it did not answer, and log the change."""
        if self.failure is None:
            log.warning("server cannot be reached", extra={"building": self.name, "address": self.address})
        self.failure = reason_of(error)
        self._fails.set()

    def mark_reachable(self) -> None:
        """Note that it answered, and log the change."""
        if self.failure is not None:
            log.info("server answers again", extra={"building": self.name, "address": self.address})
            self._fails = anyio.Event()
        self.failure = None

    def server(self) -> FastMCP[Any]:
        """A server over its tools as they were listed when it was opened last."""
        return FastMCP(self.name, providers=[self.tools])

    async def open(self, *, seconds: float) -> None:
        """List its tools; Unreachable when it does not answer in time, LoadError for a list that cannot be served."""
        tools = ForeignTools(self._connect, self)
        try:
            with anyio.fail_after(seconds):
                await tools.refresh()
        except CampusError:
            self.mark_reachable()
            raise
        except Exception as error:  # transports may raise any exception of their libraries
            self.mark_unreachable(error)
            raise Unreachable(f"building {self.name!r}: {self.address} cannot be reached ({self.failure})") from error
        self.tools = tools
        self.mark_reachable()

    async def changed(self) -> None:
        """Probe it from time to time, until it lists other tools than when it was opened."""
        failures = 1
        while True:
            if self.failure:
                await RECONNECTS.sleep(failures)
            else:
                with anyio.move_on_after(BETWEEN_PROBES):
                    await self._fails.wait()
            if self.failure or self.is_probed:
                try:
                    with anyio.fail_after(PROBE_SECONDS):
                        has_changed = await self.tools.has_changed()
                    self.mark_reachable()
                    if has_changed:
                        return
                except CampusError as error:
                    self.mark_reachable()
                    self.reject(error)
                except Exception as error:  # as above
                    self.mark_unreachable(error)
            failures = failures + 1 if self.failure else 1


def transport_to(name: str, target: Mapping[str, Any], *, limit: int) -> ClientTransport:
    """The transport of a remote server, which passes on at most `limit` bytes; pydantic's ValidationError when a key has another type."""
    if "url" in target:
        remote = RemoteMCPServer(**target).to_transport()
        assert isinstance(remote, StreamableHttpTransport | SSETransport)
        remote.httpx_client_factory = bounded_clients(limit)
        return remote
    local = StdioMCPServer(**target)
    secrets = given_secrets({name: str(value) for name, value in local.env.items()}, local.args)
    stderr = cast(TextIO, LabelledStderr(name, secrets=secrets))  # a command needs its fileno() alone
    bounded = ["-I", "-S", bounded_lines.__file__, str(limit), local.command, *local.args]
    return StdioTransport(sys.executable, bounded, env=local.env, cwd=local.cwd, keep_alive=local.keep_alive, log_file=stderr)


class ForeignTools(ProxyProvider):
    """The tools of a server that was not written for campus, as they were when they were first listed: campus has priced these."""

    def __init__(self, connect: Callable[[], Client[Any] | Awaitable[Client[Any]]], remote: ProxiedServer | None = None) -> None:
        super().__init__(connect)  # type: ignore[arg-type]  # the same two forms
        self._remote = remote
        self._known: tuple[mcp_types.Tool, ...] | None = None
        self._tools: tuple[Tool, ...] = ()

    async def listed(self) -> tuple[mcp_types.Tool, ...]:
        """What the server lists now, by name. LoadError for more than it may send, and for names that nobody could call."""
        try:
            async with await self._get_client() as client:
                return tuple(sorted(await self._pages(client), key=lambda tool: tool.name))
        except MCPError as error:
            if error.error.code == mcp_types.METHOD_NOT_FOUND:
                return ()
            if LONGER in error.error.message:
                raise self._too_long() from error
            raise
        except ValidationError as error:
            raise LoadError(f"{self._subject} does not list its tools as MCP says: {reason_of(error)}") from error

    async def _pages(self, client: Client[Any]) -> Sequence[mcp_types.Tool]:
        tools: list[mcp_types.Tool] = []
        names: set[str] = set()
        cursor, size = None, 0
        while True:
            page = await client.list_tools_mcp(cursor=cursor)
            size += EMPTY_PAGE
            for tool in page.tools:
                size += len(tool.model_dump_json())
                if self._remote is not None and size > self._remote.answer_limit:
                    raise self._too_long()
                if not NAME.fullmatch(tool.name) or tool.name in names:
                    fault = "is listed twice" if tool.name in names else "is no name: it has 1 to 128 characters, none of them a control"
                    raise LoadError(f"{self._subject} lists a tool {tool.name[:40]!r}, which {fault}; its server has to rename it")
                names.add(tool.name)
            tools += page.tools
            if page.next_cursor is None:
                return tools
            cursor = page.next_cursor

    @property
    def _subject(self) -> str:
        return "a server of the SDK" if self._remote is None else f"building {self._remote.name!r}: {self._remote.address}"

    def _too_long(self) -> LoadError:
        limit = self._remote.answer_limit if self._remote else 0
        return LoadError(f"{self._subject} sends more than {limit:,} bytes for its list of tools; raise answer_limit, or hide tools there")

    async def refresh(self) -> None:
        """Store the tools that the server lists now."""
        self._known = await self.listed()
        self._tools = tuple(map(self._tool_of, self._known))

    async def has_changed(self) -> bool:
        """True if the server lists other tools than were stored."""
        return await self.listed() != self._known

    async def _list_tools(self) -> Sequence[Tool]:
        if self._known is None:
            await self.refresh()
        return self._tools

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        found = [tool for tool in await self._list_tools() if tool.name == name]
        return next((tool for tool in found if version is None or version.matches(tool.version)), None)

    def _tool_of(self, listed: mcp_types.Tool) -> Tool:
        tool = ForeignTool.from_mcp_tool(self.client_factory, listed)
        assert isinstance(tool, ForeignTool)
        tool._remote = self._remote
        return tool


class ForeignTool(ProxyTool):
    """A tool that is called through a session. Every failure becomes a problem."""

    _remote: ProxiedServer | None = None

    async def run(self, arguments: dict[str, Any], context: Context | None = None) -> ToolResult:
        try:
            with anyio.fail_after(self._remote.seconds if self._remote else None) as limit:  # also one that never stops to send
                result = await super().run(arguments, context)
        except TimeoutError as error:
            if not limit.cancelled_caught:
                self._mark_unreachable(error)
                raise upstream_unavailable() from error
            raise late() from error
        except MCPError as error:
            raise self._problem_of(error) from error
        except ValidationError as error:  # what it sent is no result of MCP
            raise upstream_failed() from error
        except Exception as error:  # transports may raise any exception of their libraries
            if isinstance(error, RuntimeError) and NOT_AS_LISTED.match(str(error)):
                raise invalid_result(self, "its server sent what it does not list as its output schema") from None
            self._mark_unreachable(error)
            raise upstream_unavailable() from error
        if self._remote is not None:
            self._remote.mark_reachable()
        if result.is_error:
            raise problem_of_result(result)
        return result

    def _mark_unreachable(self, error: Exception) -> None:
        if self._remote is not None:
            self._remote.mark_unreachable(error)

    def _problem_of(self, error: MCPError) -> Problem:
        code = error.error.code
        if code == mcp_types.INVALID_PARAMS:
            return Problem(422, "invalid_request", "the arguments do not match the tool's input schema")
        if code not in RESERVED_CODES:
            return Problem(400, "tool_error", error.error.message)
        log.warning("server failed", extra={"tool": self.name, "reason": reason_of(error)})
        if LONGER in error.error.message or "SSE stream failed" in error.error.message:
            return Problem(502, "upstream_failed", "the server behind this tool sent a longer answer than is accepted here; ask for less")
        if code == mcp_types.CONNECTION_CLOSED:
            self._mark_unreachable(error)
            return upstream_unavailable()
        if code == mcp_types.REQUEST_TIMEOUT:
            return late()
        return upstream_failed()


def late() -> Problem:
    """Its server took longer than it may."""
    return Problem(504, "timeout", "the server behind this tool did not answer in time")


def upstream_failed() -> Problem:
    """What its server answers is of no use to the caller."""
    return Problem(502, "upstream_failed", "the server behind this tool did not return a valid answer; try again later")


def problem_of_result(result: ToolResult) -> Problem:
    """The problem of an error result: the one that it contains, 422 for invalid arguments, 502 for a crash, else 400 with its text."""
    match result.structured_content:
        case {"status": int(status), "code": str(code), "detail": str(detail)} if is_refusal(status, code):
            return Problem(status, code, detail)
    text = "\n".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent)).strip()
    if INVALID_ARGUMENTS.match(text):
        return Problem(422, "invalid_request", f"the arguments do not match the tool's input schema: {text}")
    if CRASH.fullmatch(text):
        return upstream_failed()
    return Problem(400, "tool_error", text or "the tool could not answer")


def reason_of(error: BaseException) -> str:
    """Why, in a few words: the innermost of nested errors."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = redacted(" ".join(str(error)[:2_000].split())).rpartition("Client failed to connect: ")[2]
    return (text or type(error).__name__)[:200]
