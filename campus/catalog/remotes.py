"""A building that forwards to another MCP server, at a URL or started as a command. Its tools stay listed while it is down."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio
import mcp_types
from fastmcp import FastMCP
from fastmcp.client import Client
from fastmcp.server import create_proxy
from fastmcp.server.context import Context
from fastmcp.server.providers.proxy import ProxyClient, ProxyProvider, ProxyTool
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.versions import VersionSpec
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types
from mcp import MCPError
from referencing import Registry

from campus.backoff import Backoff
from campus.errors import Unreachable
from campus.observability import origin_of, redacted
from campus.problems import upstream_unavailable
from twins import Problem, is_refusal

PROBE_SECONDS = 60.0
"""How long a later attempt waits: a command may have to download itself first."""
BETWEEN_PROBES = 15.0
RECONNECTS = Backoff.doubling(1.0, longest=30.0)
"""The waits between attempts to reach a server that does not answer."""
INVALID_ARGUMENTS = re.compile(r"\d+ validation errors? for |Input validation error|MCP error -32602")
"""How servers of FastMCP, the Python SDK and the TypeScript SDK begin the text of an error for invalid arguments."""
log = logging.getLogger(__name__)


class ProxiedServer:
    """One remote server, and whether it answered the last time. `address` is where it is, without parts that may be secret."""

    def __init__(self, name: str, target: Mapping[str, Any]) -> None:
        self.name = name
        self.address = origin_of(str(target["url"])) if "url" in target else f"the command {target['command']!r}"
        self.is_probed = "url" in target  # probing a command would start it each time
        self.failure: str | None = None
        self.rejection: str | None = None
        """Why its tools cannot be served although it answers."""
        # a caller's key, payment and other headers are meant for campus, and are not passed on
        backend: ProxyClient[Any] = ProxyClient({"mcpServers": {name: dict(target)}}, mode="auto", forward_incoming_headers=False)
        self.tools = RemoteTools(create_proxy(backend, name=name).client_factory, self)
        self.server: FastMCP[Any] = FastMCP(name, providers=[self.tools])

    def findings(self) -> Sequence[str]:
        """Why it cannot be reached, or why its tools cannot be served; empty while all is well."""
        found = [f"{self.address} cannot be reached ({self.failure}); campus keeps trying"] if self.failure else []
        return [*found, *([self.rejection] if self.rejection else [])]

    def mark_unreachable(self, error: BaseException) -> None:
        """Note that it did not answer, and log the change."""
        if self.failure is None:
            log.warning("server cannot be reached", extra={"building": self.name, "address": self.address})
        self.failure = reason_of(error)

    def mark_reachable(self) -> None:
        """Note that it answered, and log the change."""
        if self.failure is not None:
            log.info("server answers again", extra={"building": self.name, "address": self.address})
        self.failure = None

    async def open(self, *, seconds: float) -> None:
        """List its tools for the first time; Unreachable when it does not answer in time."""
        try:
            with anyio.fail_after(seconds):
                await self.tools.refresh()
        except Exception as error:  # transports may raise any exception of their libraries
            self.mark_unreachable(error)
            raise Unreachable(f"building {self.name!r}: {self.address} cannot be reached ({self.failure})") from error
        self.mark_reachable()

    async def watch(self) -> None:
        """Probe it from time to time, until cancelled."""
        failures = 1
        while True:
            await (RECONNECTS.sleep(failures) if self.failure else anyio.sleep(BETWEEN_PROBES))
            if self.failure or self.is_probed:
                try:
                    with anyio.fail_after(PROBE_SECONDS):
                        await self.tools.listed()
                    self.mark_reachable()
                except Exception as error:  # as above
                    self.mark_unreachable(error)
            failures = failures + 1 if self.failure else 1


class RemoteTools(ProxyProvider):
    """The tools as they were when the building was opened: campus has priced, routed and documented these."""

    def __init__(self, connect: Callable[[], Client[Any] | Awaitable[Client[Any]]], remote: ProxiedServer) -> None:
        super().__init__(connect)  # type: ignore[arg-type]  # the same two forms
        self._remote = remote
        self._known: tuple[Tool, ...] | None = None

    async def listed(self) -> Sequence[mcp_types.Tool]:
        """What the server lists now."""
        try:
            async with await self._get_client() as client:
                tools: Sequence[mcp_types.Tool] = await client.list_tools()
                return tools
        except MCPError as error:
            if error.error.code == mcp_types.METHOD_NOT_FOUND:
                return []
            raise

    async def refresh(self) -> None:
        """Store the tools that the server lists now."""
        self._known = tuple(self._tool_of(one) for one in await self.listed())

    async def _list_tools(self) -> Sequence[Tool]:
        if self._known is None:
            await self.refresh()
        return self._known or ()

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        found = [tool for tool in await self._list_tools() if tool.name == name]
        return next((tool for tool in found if version is None or version.matches(tool.version)), None)

    def _tool_of(self, listed: mcp_types.Tool) -> Tool:
        tool = RemoteTool.from_mcp_tool(self.client_factory, listed)
        assert isinstance(tool, RemoteTool)
        tool._remote = self._remote
        return tool


class RemoteTool(ProxyTool):
    """A tool of a remote server. Arguments are checked before they are sent, and every failure becomes a problem."""

    _remote: Any = None

    async def run(self, arguments: dict[str, Any], context: Context | None = None) -> ToolResult:
        if errors := schema_errors(arguments, self.parameters):
            raise Problem(422, "invalid_request", "; ".join(errors))
        try:
            result = await super().run(arguments, context)
        except MCPError as error:
            raise self._problem_of(error) from error
        except Exception as error:  # transports may raise any exception of their libraries
            self._remote.mark_unreachable(error)
            raise upstream_unavailable() from error
        self._remote.mark_reachable()
        if result.is_error:
            raise problem_of_result(result)
        return result

    def _problem_of(self, error: MCPError) -> Problem:
        if error.error.code == mcp_types.INVALID_PARAMS:
            return Problem(422, "invalid_request", "the arguments do not match the tool's input schema")
        log.warning("server failed", extra={"building": self._remote.name, "address": self._remote.address, "reason": reason_of(error)})
        if error.error.code == mcp_types.CONNECTION_CLOSED:
            self._remote.mark_unreachable(error)
            return upstream_unavailable()
        return Problem(502, "upstream_failed", "the server behind this tool did not return a valid answer; try again later")


def problem_of_result(result: ToolResult) -> Problem:
    """The problem of an error result: the problem that it contains, 422 for invalid arguments, else 400 with its text."""
    match result.structured_content:
        case {"status": int(status), "code": str(code), "detail": str(detail)} if is_refusal(status, code):
            return Problem(status, code, detail)
    text = "\n".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent)).strip()
    if INVALID_ARGUMENTS.match(text):
        return Problem(422, "invalid_request", "the arguments do not match the tool's input schema")
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
