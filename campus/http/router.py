"""The router: a request goes to a tool's twin, to a building's MCP endpoint, or to the pages, by its exact path."""

from collections.abc import Awaitable, Mapping

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from twins import RouteTable


class Router:
    """Routes by exact path; a path that is not listed reaches no tool."""

    def __init__(self, twins: RouteTable, mcp: Mapping[str, ASGIApp], pages: ASGIApp) -> None:
        self.replace(twins, mcp, pages)

    def replace(self, twins: RouteTable, mcp: Mapping[str, ASGIApp], pages: ASGIApp) -> None:
        """Use these routes from now on; running requests are finished by the old ones."""
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
