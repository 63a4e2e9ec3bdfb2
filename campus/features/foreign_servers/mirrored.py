"""A server that was not written for campus, mirrored whole: what it says of itself, its tools, prompts, resources and completions."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Self

import anyio
import mcp_types
from fastmcp import FastMCP
from fastmcp.client import Client
from fastmcp.exceptions import FastMCPError
from fastmcp.prompts import PromptResult
from fastmcp.resources import ResourceResult
from fastmcp.server.context import Context
from fastmcp.server.providers.proxy import ProxyPrompt, ProxyProvider, ProxyResource, ProxyTemplate, ProxyTool
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.versions import VersionSpec
from mcp import MCPError
from mcp_types import CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference
from pydantic import BaseModel, ValidationError

from campus.errors import LoadError
from campus.features.foreign_servers.bounded_lines import TOO_LONG
from campus.features.foreign_servers.watched import Upstream, reason_of
from campus.problems import fixed_problem
from twins import Problem, invalid_result, problem_of_result, upstream_failed, upstream_late, upstream_too_long

EMPTY_PAGE = 8_000
"""What a page of a list counts besides its tools, in bytes: a list of empty pages ends too."""
NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,128}")
LONGER = TOO_LONG.partition("{")[0]
"""How an error says that an answer was too long: mcp passes on nothing of an exception but its text."""
RESERVED_CODES = range(-32768, -31999)
"""The codes of JSON-RPC errors that are no tool's own."""
KEPT_SECONDS = 300.0
"""How long a list of prompts or resources is used to find one of them, as FastMCP's proxies do; whoever lists them, lists those of now."""
log = logging.getLogger(__name__)
NOT_AS_LISTED = re.compile(r"Invalid structured content returned by tool|Tool .* has an output schema but did not return")
"""What mcp's client raises for a result that it compared itself."""


@dataclass(frozen=True)
class Described:
    """What a server says of itself, and the tools that it lists, in its order."""

    info: mcp_types.Implementation | None
    instructions: str | None
    completes: bool
    tools: tuple[mcp_types.Tool, ...] = ()

    def in_order(self) -> Self:
        """The same by the names of the tools, to be compared: some servers list them in another order each time."""
        return replace(self, tools=tuple(sorted(self.tools, key=lambda tool: tool.name)))


UNKNOWN = Described(None, None, completes=False)
"""Before it was asked."""


def mirrored(name: str, described: Described, components: "ForeignComponents", **options: Any) -> FastMCP[Any]:
    """A server that is to its clients what the other is; `name` is that of its building, for one that says no name.

    `_mcp_server`: FastMCP's constructor takes neither title nor description, and replaces an empty version by its own.
    """
    info = described.info or mcp_types.Implementation(name=name, version="")
    server: FastMCP[Any] = FastMCP(
        info.name or name,
        described.instructions,
        website_url=info.website_url,
        icons=info.icons,
        providers=[components],
        **options,
    )
    low = server._mcp_server
    low.title, low.description, low.version = info.title, info.description, info.version
    if described.completes:
        server.add_completion_handler(components.complete)
    return server


class ForeignComponents(ProxyProvider):
    """What a server offers that was not written for campus. Its tools are as they were when they were listed: campus has priced these."""

    def __init__(self, connect: Callable[[], Client[Any] | Awaitable[Client[Any]]], upstream: Upstream) -> None:
        super().__init__(connect)  # type: ignore[arg-type]  # the same two forms
        self.described: Described | None = None
        self._upstream = upstream
        self._tools: tuple[Tool, ...] = ()
        self._kept: dict[str, tuple[float, Sequence[Any]]] = {}

    async def describe(self) -> Described:
        """What the server says now. LoadError for more than it may send, and for names that nobody could call."""
        try:
            async with await self._get_client() as client:
                can = client.server_capabilities
                said = Described(client.server_info, client.instructions, completes=bool(can and can.completions))
                return replace(said, tools=tuple(await self._pages(client)))
        except MCPError as error:
            if LONGER in error.error.message:
                raise self._too_long() from error
            raise
        except ValidationError as error:
            raise LoadError(f"{self._upstream.subject} does not list its tools as MCP says: {reason_of(error)}") from error

    async def _pages(self, client: Client[Any]) -> Sequence[mcp_types.Tool]:
        tools: list[mcp_types.Tool] = []
        names: set[str] = set()
        cursor, size = None, 0
        while True:
            try:
                page = await client.list_tools_mcp(cursor=cursor)
            except MCPError as error:
                if error.error.code != mcp_types.METHOD_NOT_FOUND:
                    raise
                return ()
            size += EMPTY_PAGE
            for tool in page.tools:
                size += len(tool.model_dump_json())
                if size > self._upstream.answer_limit:
                    raise self._too_long()
                if not NAME.fullmatch(tool.name) or tool.name in names:
                    fault = "is listed twice" if tool.name in names else "is no name: it has 1 to 128 characters, none of them a control"
                    raise LoadError(f"{self._upstream.subject} lists a tool {tool.name[:40]!r}, which {fault}; its server has to rename it")
                names.add(tool.name)
            tools += page.tools
            if page.next_cursor is None:
                return tools
            cursor = page.next_cursor

    def _too_long(self) -> LoadError:
        most = f"{self._upstream.answer_limit:,} bytes for its list of tools"
        return LoadError(f"{self._upstream.subject} sends more than {most}; raise answer_limit, or hide tools there")

    async def refresh(self) -> None:
        self.described = await self.describe()
        self._tools = tuple(map(self._tool_of, self.described.tools))

    async def has_changed(self) -> bool:
        return self.described is None or (await self.describe()).in_order() != self.described.in_order()

    async def _list_tools(self) -> Sequence[Tool]:
        if self.described is None:
            await self.refresh()
        return self._tools

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        found = [tool for tool in await self._list_tools() if tool.name == name]
        return next((tool for tool in found if version is None or version.matches(tool.version)), None)

    def _tool_of(self, listed: mcp_types.Tool) -> Tool:
        tool = ForeignTool.from_mcp_tool(self.client_factory, listed)
        assert isinstance(tool, ForeignTool)
        tool._upstream, tool._listed = self._upstream, listed
        return tool

    async def _list_prompts(self) -> Sequence[Any]:
        return await self._list("prompts", Client.list_prompts, ForeignPrompt.from_mcp_prompt)

    async def _list_resources(self) -> Sequence[Any]:
        return await self._list("resources", Client.list_resources, ForeignResource.from_mcp_resource)

    async def _list_resource_templates(self) -> Sequence[Any]:
        return await self._list("templates", Client.list_resource_templates, ForeignTemplate.from_mcp_template)

    async def _list(self, kind: str, listed: Callable[[Any], Awaitable[Sequence[Any]]], made: Callable[..., Any]) -> Sequence[Any]:
        components = []
        try:
            with reaching(self._upstream):
                async with await self._get_client() as client:
                    for each in await listed(client):
                        components.append(component := made(self.client_factory, each))
                        component._listed, component._upstream = each, self._upstream
        except MCPError as error:
            if error.error.code != mcp_types.METHOD_NOT_FOUND:
                raise
        self._kept[kind] = monotonic(), components
        return components

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Any:
        return await self._find("prompts", self._list_prompts, lambda prompt: prompt.name == name, version)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Any:
        return await self._find("resources", self._list_resources, lambda resource: str(resource.uri) == uri, version)

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> Any:
        return await self._find("templates", self._list_resource_templates, lambda each: each.matches(uri) is not None, version)

    async def _find(
        self, kind: str, listed: Callable[[], Awaitable[Sequence[Any]]], fits: Callable[[Any], bool], version: VersionSpec | None
    ) -> Any:
        then, components = self._kept.get(kind, (0.0, ()))
        if monotonic() - then > KEPT_SECONDS or kind not in self._kept:
            components = await listed()
        return next((each for each in components if fits(each) and (version is None or version.matches(each.version))), None)

    async def complete(
        self, reference: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
    ) -> Any:
        with reaching(self._upstream):
            async with await self._get_client() as client:
                return await client.complete(reference, argument.model_dump(), context.arguments if context else None)


@contextmanager
def reaching(upstream: Upstream) -> Iterator[None]:
    """What is not a tool of a server: an error of the protocol if it cannot be reached, or not in time."""
    try:
        with anyio.fail_after(upstream.seconds):
            yield
    except (MCPError, FastMCPError):
        raise
    except Exception as error:  # transports may raise any exception of their libraries
        upstream.mark_unreachable(error)
        raise MCPError(code=mcp_types.INTERNAL_ERROR, message="the server behind this one cannot be reached at the moment") from error


class Mirrored(BaseModel):
    """What a server lists, shown as the server lists it."""

    _listed: Any
    _upstream: Upstream

    def as_listed(self, **_: Any) -> Any:
        return self._listed


class ForeignPrompt(Mirrored, ProxyPrompt):
    """A prompt, with the server's own messages."""

    to_mcp_prompt = Mirrored.as_listed

    async def render(self, arguments: Any = None) -> PromptResult:
        with reaching(self._upstream):
            return await super().render(arguments)


class ForeignResource(Mirrored, ProxyResource):
    """A resource, with the server's own contents."""

    to_mcp_resource = Mirrored.as_listed

    async def read(self) -> ResourceResult:
        with reaching(self._upstream):
            return await super().read()


class ForeignTemplate(Mirrored, ProxyTemplate):
    """A resource template, of resources with the server's own contents."""

    to_mcp_template = Mirrored.as_listed

    async def create_resource(self, uri: str, params: dict[str, Any], context: Context | None = None) -> ProxyResource:
        with reaching(self._upstream):
            return await super().create_resource(uri, params, context)


class ForeignTool(Mirrored, ProxyTool):
    """A tool that is called through a session. Every failure becomes a problem."""

    def to_mcp_tool(self, **overrides: Any) -> mcp_types.Tool:
        """As it was listed, but for what campus says of it; FastMCP would add a title and tags."""
        shown = super().to_mcp_tool(**overrides)
        return shown.model_copy(update={"title": self._listed.title, "meta": self.meta})

    async def run(self, arguments: dict[str, Any], context: Context | None = None) -> ToolResult:
        try:
            with anyio.fail_after(self._upstream.seconds) as limit:  # also one that never stops to send
                result = await super().run(arguments, context)
        except TimeoutError as error:
            if not limit.cancelled_caught:
                self._upstream.mark_unreachable(error)
                raise fixed_problem("upstream_unavailable") from error
            raise upstream_late() from error
        except MCPError as error:
            raise self._problem_of(error) from error
        except ValidationError as error:  # what it sent is no result of MCP
            raise upstream_failed() from error
        except Exception as error:  # transports may raise any exception of their libraries
            if isinstance(error, RuntimeError) and NOT_AS_LISTED.match(str(error)):
                raise invalid_result(self, "its server sent what it does not list as its output schema") from None
            self._upstream.mark_unreachable(error)
            raise fixed_problem("upstream_unavailable") from error
        self._upstream.mark_reachable()
        if result.is_error:
            raise problem_of_result(result, self)
        return result

    def _problem_of(self, error: MCPError) -> Problem:
        code = error.error.code
        if code == mcp_types.INVALID_PARAMS:
            return Problem(422, "invalid_request", f"the arguments do not match the tool's input schema: {error.error.message}")
        if code == mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY:
            asks = "this tool asks its caller first; call it over MCP with a client that can answer"
            return Problem(409, "input_required", f"{asks}: {error.error.message}")
        if code not in RESERVED_CODES:
            return Problem(400, "tool_error", error.error.message)
        log.warning("server failed", extra={"tool": self.name, "reason": reason_of(error)})
        if LONGER in error.error.message or "SSE stream failed" in error.error.message:
            return upstream_too_long()
        if code == mcp_types.CONNECTION_CLOSED:
            self._upstream.mark_unreachable(error)
            return fixed_problem("upstream_unavailable")
        if code == mcp_types.REQUEST_TIMEOUT:
            return upstream_late()
        return upstream_failed(f" (error {code} of the protocol)")
