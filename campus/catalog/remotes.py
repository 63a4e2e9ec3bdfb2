"""A building that forwards to another MCP server, at a URL or started as a command. Its tools stay listed while it is down."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TextIO, cast

import anyio
import mcp_types
from fastmcp import FastMCP
from fastmcp.client import Client
from fastmcp.client.transports import ClientTransport, StdioTransport
from fastmcp.mcp_config import RemoteMCPServer, StdioMCPServer
from fastmcp.server import create_proxy
from fastmcp.server.context import Context
from fastmcp.server.providers.proxy import ProxyClient, ProxyProvider, ProxyTool
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.versions import VersionSpec
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types
from mcp import MCPError
from referencing import Registry

from campus.backoff import RECONNECTS
from campus.catalog.stderr import LabelledStderr
from campus.errors import Unreachable
from campus.observability import origin_of, redacted
from campus.problems import upstream_unavailable
from twins import Problem, is_refusal

PROBE_SECONDS = 60.0
"""How long a later attempt waits: a command may have to download itself first."""
BETWEEN_PROBES = 15.0
INVALID_ARGUMENTS = re.compile(r"(Error executing tool \S+: )?\d+ validation errors? for |Input validation error|MCP error -32602")
"""How servers of FastMCP, the Python SDK and the TypeScript SDK begin the text of an error for invalid arguments."""
CRASH = re.compile(r"Error (executing|calling) tool \S+")
"""The whole text of an error for a crash, of which these servers tell callers nothing more."""
RESERVED_CODES = range(-32768, -31999)
"""The codes of JSON-RPC errors that are no tool's own."""
log = logging.getLogger(__name__)


class ProxiedServer:
    """One remote server, and whether it answered the last time. `address` is where it is, without parts that may be secret."""

    def __init__(self, name: str, target: Mapping[str, Any]) -> None:
        self.name = name
        self.address = origin_of(str(target["url"])) if "url" in target else f"the command {target['command']!r}"
        self.is_probed = target.get("keep_alive", True)  # otherwise a probe would start the command each time
        self.failure: str | None = None
        self._fails = anyio.Event()
        self.rejection: str | None = None
        """Why its tools cannot be served although it answers."""
        timeout = target["timeout"] / 1000 if target.get("timeout") else None  # in milliseconds, as in clients' configurations
        # a caller's key, payment and other headers are meant for campus, and are not passed on
        backend: ProxyClient[Any] = ProxyClient(transport_to(name, target), mode="auto", timeout=timeout, forward_incoming_headers=False)
        self._connect = create_proxy(backend, name=name).client_factory
        self.tools = ForeignTools(self._connect, self)

    def findings(self) -> Sequence[str]:
        """Why it cannot be reached, or why its tools cannot be served; empty while all is well."""
        found = [f"{self.address} cannot be reached ({self.failure}); campus keeps trying"] if self.failure else []
        return [*found, *([self.rejection] if self.rejection else [])]

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
        """List its tools; Unreachable when it does not answer in time."""
        tools = ForeignTools(self._connect, self)
        try:
            with anyio.fail_after(seconds):
                await tools.refresh()
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
                except Exception as error:  # as above
                    self.mark_unreachable(error)
            failures = failures + 1 if self.failure else 1


def transport_to(name: str, target: Mapping[str, Any]) -> ClientTransport:
    """The transport of a remote server; pydantic's ValidationError when a key has another type."""
    if "url" in target:
        return RemoteMCPServer(**target).to_transport()
    local = StdioMCPServer(**target)
    stderr = cast(TextIO, LabelledStderr(name))  # a command needs its fileno() alone
    return StdioTransport(local.command, local.args, env=local.env, cwd=local.cwd, keep_alive=local.keep_alive, log_file=stderr)


class ForeignTools(ProxyProvider):
    """The tools of a server that was not written for campus, as they were when they were first listed: campus has priced these."""

    def __init__(self, connect: Callable[[], Client[Any] | Awaitable[Client[Any]]], remote: ProxiedServer | None = None) -> None:
        super().__init__(connect)  # type: ignore[arg-type]  # the same two forms
        self._remote = remote
        self._known: tuple[mcp_types.Tool, ...] | None = None
        self._tools: tuple[Tool, ...] = ()

    async def listed(self) -> tuple[mcp_types.Tool, ...]:
        """What the server lists now, by name."""
        try:
            async with await self._get_client() as client:
                return tuple(sorted(await client.list_tools(), key=lambda tool: tool.name))
        except MCPError as error:
            if error.error.code == mcp_types.METHOD_NOT_FOUND:
                return ()
            raise

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
    """A tool that is called through a session. Arguments are checked before they are sent, and every failure becomes a problem."""

    _remote: Any = None

    async def run(self, arguments: dict[str, Any], context: Context | None = None) -> ToolResult:
        if errors := schema_errors(arguments, self.parameters):
            raise Problem(422, "invalid_request", "; ".join(errors))
        try:
            result = await super().run(arguments, context)
        except MCPError as error:
            raise self._problem_of(error) from error
        except Exception as error:  # transports may raise any exception of their libraries
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
        if code == mcp_types.CONNECTION_CLOSED:
            self._mark_unreachable(error)
            return upstream_unavailable()
        if code == mcp_types.REQUEST_TIMEOUT:
            return Problem(504, "timeout", "the server behind this tool did not answer in time")
        return upstream_failed()


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


def schema_errors(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """What the tool's own schema finds wrong with the arguments: a sentence for each error, without any value.

    Empty if the schema cannot be applied here, as with a pattern that only JavaScript can read: the server checks them itself.
    """
    try:
        return [_sentence(error) for error in Draft202012Validator(schema, registry=Registry()).iter_errors(dict(arguments))][:10]
    except Exception as error:  # the border to another server's schemas: jsonschema may raise anything
        log.info("arguments are not checked here", extra={"reason": reason_of(error)})
        return []


def _sentence(error: Any) -> str:
    where = ".".join(str(step) for step in error.absolute_path)
    missing = [name for name in error.validator_value if name not in error.instance] if error.validator == "required" else []
    if missing:
        return " and ".join(f"argument {f'{where}.' if where else ''}{name} is required" for name in missing)
    if error.validator == "additionalProperties" and not where:
        known = error.schema.get("properties", {})
        unknown = ", ".join(sorted(set(error.instance) - set(known)))
        return f"there is no argument {unknown}; the arguments are: {', '.join(known) or 'none'}"
    return f"argument {where or 'list'} does not match its schema: {error.validator} must be {error.validator_value!r}"


def reason_of(error: BaseException) -> str:
    """Why, in a few words: the innermost of nested errors."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = redacted(" ".join(str(error).split())).rpartition("Client failed to connect: ")[2]
    return (text or type(error).__name__)[:200]
