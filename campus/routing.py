"""Where a request goes: a tool's twin, a building's MCP endpoint, or campus's own pages."""

from collections.abc import Mapping

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from twins import RouteTable


class Router:
    """Exact addresses first: what is not listed here reaches no tool."""

    def __init__(self, twins: RouteTable, mcp: Mapping[str, ASGIApp], pages: ASGIApp) -> None:
        self._twins = twins
        self._mcp = mcp
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        path: str = scope["path"]
        if found := self._twins.find(path):
            endpoint, scope["path_params"] = found
            await endpoint(scope, receive, send)
        elif server := self._mcp.get(path):
            await server(scope, receive, send)
        elif path.rstrip("/") in self._mcp:
            await RedirectResponse(path.rstrip("/"), status_code=307)(scope, receive, send)
        else:
            await self._pages(scope, receive, send)
