"""What a server was made of when its tools were listed: whether that still holds, and which tools may be called without the server.

An author may change a server at any time: add, remove, replace or hide a tool, mount a server, add a transform or middleware. FastMCP tells
nobody, so each request asks: `await catalog.holds()` compares public lists, by identity first (2.5 µs for 30 tools).
"""

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.server.middleware.dereference import DereferenceRefsMiddleware
from fastmcp.server.providers import LocalProvider, Provider
from fastmcp.server.transforms import Namespace, Transform
from fastmcp.tools import FunctionTool, Tool
from mcp.shared.inbound import x_mcp_header_map
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from twins.fastmcp import every_tool, extensions_of, page_size_of, set_http_request
from twins.tool.context import why_slow

CALL_HOOKS = ("__call__", "_dispatch_handler", "on_message", "on_request", "on_call_tool")
LIST_HOOKS = (*CALL_HOOKS, "on_list_tools", "on_initialize", "on_discover")
ALIKE = frozenset(
    {
        *("Visibility", "Namespace", "ToolTransform", "VersionFilter", "PromptsAsTools", "ResourcesAsTools"),
        *("BM25SearchTransform", "RegexSearchTransform", "JevSearchTransform", "CodeMode"),
    }
)
"""FastMCP's transforms that show every caller the same tools. One that is derived from them, or new, may decide by caller."""
RENEWED = "twins.renewed"
RELISTED_AFTER = 1.0  # Seconds between two lists of a server of which no attribute says whether it has changed.
LONGEST_PAUSE = 10.0  # The most of them, where a list takes long.
SLOW = 0.5  # Seconds after which such a list is slow.


class Catalog:
    """A server's tools as they were listed for nobody in particular.

    `why` is the reason why the server has to be asked for every call; None where `why_not(tool)` decides. With `gated`, middleware and
    extensions whose class has `twin_safe = True` count as the gate's own, and so does a login.
    """

    def __init__(self, server: FastMCP[Any], *, gated: bool = False) -> None:
        self.server = server
        self.tools: Sequence[Tool] = ()
        self._gated = gated
        self._providers, self._middleware, self._transforms = list(server.providers), list(server.middleware), list(server.transforms)
        self._local = server.local_provider
        self._below = list(self._local.transforms)
        self._instructions = server.instructions
        self._listed: Sequence[Tool] | None = None
        self._listed_at = monotonic()
        self._is_listing = False
        self._took = 0.0
        self._is_listed = True
        self._prefixes: Sequence[str] | None = () if self._providers == [self._local] else None
        self._is_steady = all(map(treats_all_alike, self._below))
        self.why = self._why_the_server()

    @classmethod
    async def of(cls, server: FastMCP[Any], *, gated: bool = False) -> "Catalog":
        """The catalog of now. Raises what listing raises."""
        catalog = cls(server, gated=gated)
        if catalog._is_steady:
            catalog._listed = await catalog._local.list_tools()
            # a transform that makes each tool anew for each list, which compares as another one, is no sign of a change
            catalog._is_steady = await catalog._local.list_tools() == catalog._listed
        catalog.tools = await every_tool(server)
        catalog._prefixes = await _prefixes_of(server.providers, catalog._local)
        return catalog

    @classmethod
    def unlisted(cls, was: "Catalog", reason: str) -> "Catalog":
        """The catalog of a server that has changed and cannot be listed: what it had is offered, and it is asked for every call."""
        catalog = cls(was.server, gated=was._gated)
        catalog.tools, catalog.why = was.tools, catalog.why or reason
        catalog._is_steady, catalog._is_listed = False, False
        return catalog

    async def holds(self) -> bool:
        """True while nothing has changed that the server's own attributes and its local tools show."""
        server = self.server
        return (
            server.providers == self._providers
            and server.middleware == self._middleware
            and server.transforms == self._transforms
            and self._local.transforms == self._below
            and server.instructions == self._instructions
            and (not self._is_steady or await self._lists_the_same())
        )

    async def _lists_the_same(self) -> bool:
        listed = await self._local.list_tools()
        if self._listed is None:  # it was made without a list
            self._listed = listed
        return listed == self._listed

    async def holds_below(self, *, at_once: bool = False) -> bool:
        """As `holds`, and what mounted servers, other providers and middleware list is the same.

        These are asked once a second at most, less often where it takes them long, or `at_once`.
        """
        if not await self.holds():
            return False
        if self.is_constant or self._is_listing or (not at_once and monotonic() - self._listed_at < self._pause):
            return True
        self._is_listing, self._listed_at = True, (began := monotonic())
        try:
            listed = await every_tool(self.server)
        finally:
            self._is_listing, self._listed_at = False, monotonic()
            self._took = self._listed_at - began
        return self._is_listed and [*map(_as_shown, listed)] == [*map(_as_shown, self.tools)]

    @property
    def _pause(self) -> float:
        """Seconds between two lists: of a server with thousands of tools each takes a part of a second."""
        return min(max(RELISTED_AFTER, 10 * self._took), LONGEST_PAUSE)

    @property
    def is_slow(self) -> bool:
        """True if the last list took long, or one that has not ended does: whom it does not concern, should not wait."""
        return self._took > SLOW or (self._is_listing and monotonic() - self._listed_at > SLOW)

    async def only_for(self, scope: Scope) -> Sequence[Tool]:
        """The tools that the caller of this HTTP request is shown, and nobody in particular is not; none where all are treated alike."""
        if self.is_constant:
            return ()
        known = {tool.name for tool in self.tools}
        with set_http_request(Request(scope)):
            names = dict.fromkeys(tool.name for tool in await self.server.list_tools() if tool.name not in known)
            found = [await self.server.get_tool(name) for name in names]
        return [tool for tool in found if tool is not None]

    @property
    def is_constant(self) -> bool:
        """True if every caller is shown the same tools, which change only where `holds` sees it."""
        return (
            self._is_steady
            and all(each is self._local or getattr(type(each), "twin_safe", False) for each in self._providers)
            and page_size_of(self.server) is None
            and not any(self._takes_part(each, LIST_HOOKS) for each in self._middleware)
            and all(map(treats_all_alike, self._transforms))
            and self._has_no_extensions()
            and not any(tool.auth for tool in (*self.tools, *(self._listed or ())))
        )

    def why_not(self, tool: Tool) -> str | None:
        """Why a tool cannot be called without its server, in either frame; None if it can."""
        if self.why is not None:
            return self.why
        if type(tool) is not FunctionTool:
            return "it is no plain function"
        if tool.auth is not None or tool.task_config.mode != "forbidden":
            return "its auth or its tasks are the server's"
        if "InputRequired" in str(tool.return_type):
            return "it asks its caller"
        if x_mcp_header_map(tool.parameters):
            return "some of its arguments are headers"
        if self._prefixes is None or tool.name.startswith(tuple(self._prefixes)):
            return "another provider may have it"
        return None

    def _why_the_server(self) -> str | None:
        server = self.server
        if (slow := why_slow()) is not None:
            return slow
        if type(server) is not FastMCP or any(callable(getattr(FastMCP, name, None)) for name in vars(server)):
            return "the server overrides FastMCP"
        if server.auth is not None and not self._gated:
            return "the server has a login"
        if not self._has_no_extensions():
            return "an extension may take part in calls"
        if not all(map(treats_all_alike, (*self._transforms, *self._below))):
            return "a transform may decide by caller"
        if not isinstance(self._local, LocalProvider) or not is_of_fastmcp(type(self._local)):
            return "its own tools come from a provider that is not FastMCP's"
        if any(self._takes_part(each, CALL_HOOKS) for each in self._middleware):
            return "middleware takes part in calls"
        return None

    def _has_no_extensions(self) -> bool:
        found = extensions_of(self.server)
        return found is not None and all(self._gated and getattr(type(each), "twin_safe", False) for each in found)

    def _takes_part(self, middleware: Middleware, hooks: Sequence[str]) -> bool:
        kind = type(middleware)
        if getattr(kind, "twin_safe", False):  # without a gate, what has it may be the server's only gate
            return not self._gated and not isinstance(middleware, DereferenceRefsMiddleware)
        if kind is DereferenceRefsMiddleware:
            return False
        if any(is_of_fastmcp(each) and each is not Middleware for each in kind.__mro__):  # FastMCP may look for these by their class
            return True
        replaced = (getattr(kind, hook, None) is not getattr(Middleware, hook, None) for hook in hooks)
        return any(replaced) or not vars(middleware).keys().isdisjoint(hooks)


class WhileItHolds:
    """An ASGI app while its server is as it was listed; once it has changed, `changed` answers, which may send the request here again."""

    def __init__(self, app: ASGIApp, catalog: Catalog, changed: ASGIApp) -> None:
        self._app = app
        self._holds = catalog.holds
        self._changed = changed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await self._holds() or RENEWED in scope:
            await self._app(scope, receive, send)
            return
        scope[RENEWED] = True  # a server that is another one at each look is asked as it is
        await self._changed(scope, receive, send)


def is_of_fastmcp(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "fastmcp"


def treats_all_alike(transform: Transform) -> bool:
    """True for transforms that show every caller the same tools: those of FastMCP that are known, and those that say `twin_safe = True`."""
    kind = type(transform)
    return getattr(kind, "twin_safe", False) or (is_of_fastmcp(kind) and kind.__name__ in ALIKE)


async def _prefixes_of(providers: Iterable[Provider], local: Provider) -> list[str] | None:
    """How all names begin that providers other than the server's own can have; None if one of them can have any name.

    A namespace does not tell its prefix, so it is asked to rename a tool.
    """
    found = []
    for each in providers:
        if each is local:
            continue
        last = each.transforms[-1:]
        if not last or type(last[0]) is not Namespace:
            return None
        [probe] = await last[0].list_tools([Tool.from_function(lambda: None, name="x")])
        found.append(probe.name.removesuffix("x"))
    return found


def _as_shown(tool: Tool) -> tuple[object, ...]:
    """What callers see of a tool, to be compared: a provider may make its objects anew for each list."""
    return (tool.key, tool.parameters, tool.output_schema, tool.title, tool.description, tool.meta, tool.annotations, tool.auth is not None)
