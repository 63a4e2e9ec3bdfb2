"""A building that is another server's, reached by its address or as a command: its tools, as last listed, while it is away too."""

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

from campus.errors import Unreachable
from campus.observability.logs import origin_of, redacted
from campus.problems import upstream_unavailable
from twins import Problem

FIRST_SECONDS = 10.0
"""How long the start of a campus waits for another server."""
PROBE_SECONDS = 60.0
"""How long it is waited for while the rest is served: a command may have to fetch itself first."""
BETWEEN_PROBES = 15.0
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
MISFIT = re.compile(r"\d+ validation errors? for |Input validation error|MCP error -32602")
"""How servers of FastMCP, the Python SDK and the TypeScript SDK begin the text of a call whose arguments do not fit."""
log = logging.getLogger(__name__)


class ProxiedServer:
    """One server elsewhere, and whether it answered the last time. `address` says where, without what may be secret."""

    def __init__(self, name: str, target: Mapping[str, Any]) -> None:
        self.name = name
        self.address = origin_of(str(target["url"])) if "url" in target else f"the command {target['command']!r}"
        self.is_probed = "url" in target  # a command would be started each time
        self.trouble: str | None = None
        self.refusal: str | None = None
        """Why what it offers cannot be served, though it answers."""
        # a caller's key, payment and other headers are for campus, and are not passed on
        backend: ProxyClient[Any] = ProxyClient({"mcpServers": {name: dict(target)}}, mode="auto", forward_incoming_headers=False)
        self.tools = RemoteTools(create_proxy(backend, name=name).client_factory, self)
        self.server: FastMCP[Any] = FastMCP(name, providers=[self.tools])

    def findings(self) -> Sequence[str]:
        """That it cannot be reached, and why, or that its tools cannot be served; nothing while all is well."""
        found = [f"{self.address} cannot be reached ({self.trouble}); it is tried again by itself"] if self.trouble else []
        return [*found, *([self.refusal] if self.refusal else [])]

    def lost(self, error: BaseException) -> None:
        """It did not answer."""
        if self.trouble is None:
            log.warning("server cannot be reached", extra={"building": self.name, "address": self.address})
        self.trouble = reason_of(error)

    def found(self) -> None:
        """It answered."""
        if self.trouble is not None:
            log.info("server answers again", extra={"building": self.name, "address": self.address})
        self.trouble = None

    async def open(self, *, seconds: float) -> None:
        """List its tools for the first time; Unreachable when it does not answer in time."""
        try:
            with anyio.fail_after(seconds):
                await self.tools.refresh()
        except Exception as error:  # transports raise whatever their libraries do
            self.lost(error)
            raise Unreachable(f"building {self.name!r}: {self.address} cannot be reached ({self.trouble})") from error
        self.found()

    async def watch(self) -> None:
        """Ask now and then whether it answers, until cancelled."""
        wait = FIRST_WAIT
        while True:
            await anyio.sleep(wait if self.trouble else BETWEEN_PROBES)
            if self.trouble or self.is_probed:
                try:
                    with anyio.fail_after(PROBE_SECONDS):
                        await self.tools.listed()
                    self.found()
                except Exception as error:  # as above
                    self.lost(error)
            wait = min(2 * wait, LONGEST_WAIT) if self.trouble else FIRST_WAIT


class RemoteTools(ProxyProvider):
    """The tools as they were when the building was opened: those that campus has priced, routed and documented."""

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
        """Take the tools that the server lists now."""
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
    """A tool elsewhere; what can be refused without asking is, and what goes wrong is told as a problem of its own kind."""

    _remote: Any = None

    async def run(self, arguments: dict[str, Any], context: Context | None = None) -> ToolResult:
        if misfits := schema_errors(arguments, self.parameters):
            raise Problem(422, "invalid_request", "; ".join(misfits))
        try:
            result = await super().run(arguments, context)
        except MCPError as error:
            raise self._refused(error) from error
        except Exception as error:  # transports raise whatever their libraries do
            self._remote.lost(error)
            raise upstream_unavailable() from error
        self._remote.found()
        if result.is_error:
            raise problem_of_result(result)
        return result

    def _refused(self, error: MCPError) -> Problem:
        if error.error.code == mcp_types.INVALID_PARAMS:
            return Problem(422, "invalid_request", "the arguments do not fit the tool's input schema")
        log.warning("server failed", extra={"building": self._remote.name, "address": self._remote.address, "reason": reason_of(error)})
        if error.error.code == mcp_types.CONNECTION_CLOSED:
            self._remote.lost(error)
            return upstream_unavailable()
        return Problem(502, "upstream_failed", "the server behind this tool did not answer as it should; try again later")


def problem_of_result(result: ToolResult) -> Problem:
    """An error result as a problem: its own where it is one, 422 for arguments that do not fit, else 400 with its text."""
    match result.structured_content:
        case {"status": int(status), "code": str(code), "detail": str(detail)} if 400 <= status <= 599:
            return Problem(status, code, detail)
    text = "\n".join(block.text for block in result.content if isinstance(block, mcp_types.TextContent)).strip()
    if MISFIT.match(text):
        return Problem(422, "invalid_request", "the arguments do not fit the tool's input schema")
    return Problem(400, "tool_error", text or "the tool could not answer")


def schema_errors(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[str]:
    """What is wrong with the arguments by the tool's own schema, a sentence each, in which no value is repeated.

    Nothing where the schema cannot be applied here, as with a pattern that only JavaScript reads: the server checks them itself.
    """
    try:
        return [_sentence(error) for error in Draft202012Validator(schema, registry=Registry()).iter_errors(dict(arguments))][:10]
    except Exception as error:  # the border to another server's schemas: jsonschema raises whatever its parts do
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
        return f"there is no argument {unknown}; there are: {', '.join(known) or 'none'}"
    return f"argument {where or 'list'} does not fit its schema: {error.validator} must be {error.validator_value!r}"


def reason_of(error: BaseException) -> str:
    """Why, in a few words: of nested errors the innermost."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = redacted(" ".join(str(error).split())).rpartition("Client failed to connect: ")[2]
    return (text or type(error).__name__)[:200]
