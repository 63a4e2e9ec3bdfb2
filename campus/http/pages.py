"""Campus's own pages: what describes the service, explains errors, and answers whoever asks at the wrong door."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.building import Page
from campus.catalog.server import OpenBuilding
from campus.directory import Directory
from campus.errors import EXPLAINED_AT
from campus.explanations import explanation_of
from campus.site import ROUTE, SITE, Site
from twins import Problem, RouteEntry
from twins.fastmcp_internals import author_routes

PROBLEM_JSON = "application/problem+json"


def problem_response(problem: Problem, request: Request) -> Response:
    """A problem over HTTP."""
    body = problem.body(types=EXPLAINED_AT, request_id=request.scope.get("request_id"))
    return JSONResponse(body, problem.status, headers=problem.headers, media_type=PROBLEM_JSON)


def own_routes(directory: Directory, documents: Mapping[str, dict[str, Any]], problems: Mapping[str, Mapping[str, str]]) -> list[Route]:
    """The routes of campus itself: `documents` are the OpenAPI documents by their path, `problems` each building's explained codes."""

    async def describe(request: Request) -> Response:
        entry = directory.building(request.path_params["building"])
        if entry is None:
            raise not_found(directory)
        return JSONResponse({"ok": True, **entry.model_dump(mode="json")})

    async def explain(request: Request) -> Response:
        return JSONResponse(explanation_of(request.path_params["code"], problems))

    return [
        *(Route(path, constant(JSONResponse(document))) for path, document in documents.items()),
        Route("/v1/{building}", describe),
        Route("/errors/{code}", explain),
        Route("/register", refuse_registration, methods=["POST"]),
    ]


async def refuse_registration(request: Request) -> Response:
    """Clients that look for OAuth show this sentence to their user."""
    return JSONResponse(
        {
            "error": "invalid_request",
            "error_description": "No OAuth here. Send the header Authorization: Bearer KEY, or no key for free tools.",
        },
        400,
    )


def constant(response: Response) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint that always answers the same."""

    async def answer(request: Request) -> Response:
        return Response(response.body, headers=dict(response.headers))

    return answer


def page_entries(opened: OpenBuilding, site: Site[Any, Any]) -> list[RouteEntry]:
    """A building's pages for the table of routes; each is given the building's site."""
    return [_page_entry(page, site) for page in opened.loaded.building.pages]


def _page_entry(page: Page, site: Site[Any, Any]) -> RouteEntry:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        scope[SITE], scope[ROUTE] = site, page.path
        try:
            response = await page.answer(request, site)
        except Problem as problem:
            response = problem_response(problem, request)
        await response(scope, receive, send)

    methods = (*page.methods, "HEAD") if "GET" in page.methods else page.methods
    return RouteEntry(methods, page.path, app, f"the page {page.path} of {site.name}")


def exposed_routes(opened: OpenBuilding) -> list[BaseRoute]:
    """A server's own routes, where campus.toml exposes them."""
    return author_routes(opened.loaded.server) if "routes" in opened.loaded.table.expose else []


def pages_app(routes: Sequence[BaseRoute], directory: Directory) -> ASGIApp:
    """All pages as one app; whatever it does not know is told where to look, and faults go on to the edge."""

    async def refuse(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error = not_found(directory) if error.status_code == 404 else _from_starlette(error)
        assert isinstance(error, Problem)
        return problem_response(error, request)

    router = Router(routes=list(routes), redirect_slashes=False)
    app = ExceptionMiddleware(router, handlers={Problem: refuse, HTTPException: refuse})

    async def within(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # with an app around them, routes raise what they refuse, instead of answering in plain text
        await app(scope, receive, send)

    return within


def not_found(directory: Directory) -> Problem:
    """404 that says what there is."""
    gateway = directory.building("gateway")
    look = f"; {directory.url}/v1/gateway/list_buildings lists every address" if gateway else f"; see {directory.url}/v1/openapi.json"
    return Problem(404, "not_found", f"there is nothing at this address{look}")


def _from_starlette(error: HTTPException) -> Problem:
    code = "method_not_allowed" if error.status_code == 405 else "invalid_request"
    return Problem(error.status_code, code, error.detail, headers=dict(error.headers or {}))
