"""The router behind the edge: tools' routes, MCP endpoints and pages by exact path, and what is said at an address that is nearly right."""

from collections.abc import Awaitable, Mapping

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.context import context_of
from campus.http.response import send_problem
from twins import Problem, RouteTable

MCP_METHODS = ("POST", "DELETE")


class Router:
    """Routes by exact path; a path that is not listed reaches no tool."""

    def __init__(self, twins: RouteTable, mcp: Mapping[str, ASGIApp], pages: RouteTable, rest: ASGIApp) -> None:
        self.replace(twins, mcp, pages, rest)

    def replace(self, twins: RouteTable, mcp: Mapping[str, ASGIApp], pages: RouteTable, rest: ASGIApp) -> None:
        """Use these routes from now on; running requests are finished by the old ones. `rest` answers where the others have no route."""
        self._twins = twins
        self._mcp = mcp
        self._pages = pages
        self._rest = rest

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass the request on. Not a coroutine itself: that saves one per call."""
        path: str = scope["path"]
        if found := self._twins.find(path):
            endpoint, scope["path_params"] = found
            return endpoint(scope, receive, send)
        if server := self._mcp.get(path):
            context_of(scope).route = path
            return server(scope, receive, send) if scope["method"] in MCP_METHODS else explain_mcp(scope, send)
        if found := self._pages.find(path):
            endpoint, scope["path_params"] = found
            return endpoint(scope, receive, send)
        if path.endswith("/") and not path.startswith("//"):
            return self._without_slash(path.rstrip("/"), scope, receive, send)
        return self._rest(scope, receive, send)

    def _without_slash(self, path: str, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Lead to the MCP server or the page that is served without the slash; a caller of a tool is told, as curl follows nothing."""
        if path in self._mcp or self._pages.find(path):
            query = scope["query_string"].decode("latin-1")
            return RedirectResponse(f"{path}?{query}" if query else path, status_code=307)(scope, receive, send)
        if self._twins.find(path):
            problem = Problem(404, "not_found", "there is nothing at this address; leave out the slash at its end")
            return send_problem(send, problem, scope.get("request_id"))
        return self._rest(scope, receive, send)


def explain_mcp(scope: Scope, send: Send) -> Awaitable[None]:
    """405 for curl, a browser or a monitoring probe. MCP clients read its status alone: no stream is offered to their GET."""
    context_of(scope).route = scope["path"]
    detail = (
        "This is the address of an MCP server (streamable HTTP): add it to an MCP client, which sends POST requests."
        " The same tools can be called over plain HTTP; /v1/openapi.json describes the routes."
    )
    problem = Problem(405, "method_not_allowed", detail, headers={"Allow": ", ".join(MCP_METHODS)})
    return send_problem(send, problem, scope.get("request_id"))
