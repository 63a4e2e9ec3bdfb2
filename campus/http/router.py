"""Where a request goes: a tool's twin, a building's MCP endpoint, or campus's own pages."""

from collections.abc import Awaitable, Mapping

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from twins import RouteTable


class Router:
    """Exact addresses first: what is not listed here reaches no tool."""

    def __init__(self, twins: RouteTable, mcp: Mapping[str, ASGIApp], pages: ASGIApp) -> None:
        self.replace(twins, mcp, pages)

    def replace(self, twins: RouteTable, mcp: Mapping[str, ASGIApp], pages: ASGIApp) -> None:
        """Serve these from now on; requests that are being answered go on as they began."""
        self._twins = twins
        self._mcp = mcp
        self._pages = pages

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass the request on. Not a coroutine itself: that saves one per call."""
        path: str = scope["path"]
        if found := self._twins.find(path):
            endpoint, scope["path_params"] = found
            return endpoint(scope, receive, send)
        if server := self._mcp.get(path):
            return server(scope, receive, send)
        if path.rstrip("/") in self._mcp:
            return RedirectResponse(path.rstrip("/"), status_code=307)(scope, receive, send)
        return self._pages(scope, receive, send)
