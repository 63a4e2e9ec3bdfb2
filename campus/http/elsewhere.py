"""MCP endpoints in the table of routes, and what is said at an address that no route has, such as one that is nearly right."""

from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.context import context_of
from campus.http.response import send_problem
from campus.http.service_routes import answering
from campus.problems import fixed_problem
from twins import ANY, Problem, RouteEntry, RouteTable

MCP_METHODS = ("POST", "DELETE")
TOOLS = "/v1/"
"""Below it are the tools' routes."""


def mcp_entry(path: str, server: ASGIApp) -> RouteEntry:

    def app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        context_of(scope).route = path
        return server(scope, receive, send) if scope["method"] in MCP_METHODS else explain_mcp(scope, send)

    return RouteEntry((ANY,), path, app, f"the MCP endpoint {path}")


def explain_mcp(scope: Scope, send: Send) -> Awaitable[None]:
    """405 for curl, a browser or a monitoring probe. MCP clients read its status alone: no stream is offered to their GET."""
    context_of(scope).route = scope["path"]
    detail = (
        "This is the address of an MCP server (streamable HTTP): add it to an MCP client, which sends POST requests."
        " The same tools can be called over plain HTTP; /v1/openapi.json describes the routes."
    )
    problem = Problem(405, "method_not_allowed", detail, headers={"Allow": ", ".join(MCP_METHODS)})
    return send_problem(send, problem, scope.get("request_id"))


def unreachable(path: str) -> RouteEntry:
    return RouteEntry((ANY,), path, answering(_refuse), f"the absent address {path}")


async def _refuse(_: Request) -> NoReturn:
    raise fixed_problem("upstream_unavailable")


def elsewhere(table: Callable[[], RouteTable], *, closed: Collection[str], rest: ASGIApp) -> ASGIApp:
    """The app for every address that `table` does not have. `closed` are the buildings whose servers cannot be reached.

    An address with a slash too many leads to the page or the MCP server without it; a caller of a tool is told, as curl follows nothing.
    """

    async def lead(request: Request) -> Response:
        path = request.url.path.rstrip("/")
        if path.startswith(TOOLS):
            raise Problem(404, "not_found", "there is nothing at this address; leave out the slash at its end")
        return RedirectResponse(f"{path}?{request.url.query}" if request.url.query else path, status_code=307)

    def app(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope["path"]
        if path.endswith("/") and not path.startswith("//") and table().find(path.rstrip("/")):
            return answering(lead)(scope, receive, send)
        if path.startswith(TOOLS) and path.removeprefix(TOOLS).partition("/")[0] in closed:
            return answering(_refuse)(scope, receive, send)
        return rest(scope, receive, send)

    return app
