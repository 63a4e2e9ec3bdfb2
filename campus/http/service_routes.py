"""The routes besides the tools: documents, descriptions, explained errors, the buildings' pages, and the operator's (metrics)."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
from anyio import to_thread
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.addresses import Listen
from campus.building import Page
from campus.context import context_of
from campus.directory import Directory
from campus.http.edge import Edge
from campus.http.health import Health
from campus.http.response import send_problem
from campus.layout.answers import PATH as ANSWERS
from campus.layout.answers import answered
from campus.layout.renderer import Layout, ProblemPage
from campus.problems import EXPLAINED_AT, explanations
from campus.site import Site
from twins import ANY, Answer, Problem, RouteEntry, RouteTable, etag_of, or_not_modified, send_answer

DESCRIPTION = "campus's description of a building"
AN_HOUR = "public, max-age=3600"
FIVE_MINUTES = "public, max-age=300"
PROBLEM_JSON = "application/problem+json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Document:
    """A document that follows from the configuration alone, as an ASGI app: made once, with an ETag, the same for GET and HEAD.

    It is made when it is first read, in a thread: some take a while. Pages of any origin may read it: it holds nothing that not
    everybody may see.
    """

    def __init__(
        self, make: Callable[[], bytes], media_type: str, *, cache: str = AN_HOUR, headers: Mapping[str, str] | None = None
    ) -> None:
        self._make = make
        self._headers = {"Content-Type": media_type, "Cache-Control": cache, "Access-Control-Allow-Origin": "*", **(headers or {})}
        self._answer: Answer | None = None
        self._making = anyio.Lock()

    @classmethod
    def json(cls, make: Callable[[], object], media_type: str = "application/json", *, cache: str = AN_HOUR, **headers: str) -> "Document":
        return cls(lambda: json.dumps(make(), ensure_ascii=False, separators=(",", ":")).encode(), media_type, cache=cache, headers=headers)

    @classmethod
    def text(cls, make: Callable[[], str], media_type: str = "text/plain; charset=utf-8") -> "Document":
        return cls(lambda: make().encode(), media_type)

    async def answer(self) -> Answer:
        async with self._making:
            if self._answer is None:
                self._answer = await to_thread.run_sync(self._made)
            return self._answer

    def _made(self) -> Answer:
        body = self._make()
        return Answer(200, body).adding({"ETag": etag_of(body), **self._headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context_of(scope).route = scope["path"]
        if scope["method"] in ("GET", "HEAD"):
            await send_answer(send, or_not_modified(await self.answer(), scope), with_body=scope["method"] == "GET")
            return
        problem = Problem(405, "method_not_allowed", "This is a document: read it with GET or HEAD.", headers={"Allow": "GET, HEAD"})
        await send_problem(send, problem, scope.get("request_id"))

    def route(self, path: str) -> RouteEntry:
        return RouteEntry((ANY,), path, self, f"the document {path}")


def problem_response(problem: Problem, request: Request) -> Response:
    """A problem over HTTP. The edge makes a page of it for browsers, which no cache may take for this one."""
    body = problem.body(types=EXPLAINED_AT, request_id=request.scope.get("request_id"))
    headers = {"Cache-Control": "no-store", "Vary": "Accept", **problem.headers}
    return JSONResponse(body, problem.status, headers=headers, media_type=PROBLEM_JSON)


def own_routes(directory: Directory, own: Mapping[str, str], problems: Mapping[str, Mapping[str, str]], layout: Layout) -> list[RouteEntry]:
    """`own` explains campus's own problem codes, `problems` those of each building."""

    async def describe(request: Request) -> Response:
        entry = directory.building(request.path_params["building"])
        if entry is None:
            raise not_found(directory)
        data = {"ok": True, **entry.model_dump(mode="json")}
        return layout.own.page("building.html", request, data=data, headers={"Cache-Control": FIVE_MINUTES}, building=entry)

    async def explain(request: Request) -> Response:
        explained = explanations(own, problems).get(request.path_params["code"])
        if explained is None:
            detail = f"this code is not among those explained at {directory.url}/errors; a problem says in its own `detail` what is wrong"
            raise Problem(404, "not_found", detail)
        return layout.own.page("explanation.html", request, data=explained, explained=explained)

    async def explain_all(request: Request) -> Response:
        codes = {code: one["explanation"] for code, one in explanations(own, problems).items()}
        of_buildings = ((one.name, one.title, sorted(problems.get(one.name, ()))) for one in directory.buildings())
        named = (("every", "Every server", own), *of_buildings)
        groups = tuple((name, title, tuple((code, codes[code]) for code in found)) for name, title, found in named if found)
        return layout.own.page("explanations.html", request, data={"ok": True, "codes": codes}, groups=groups)

    async def refuse_registration(request: Request) -> Response:
        """404 like any unknown address; to a client that wants to register for a login in words that it shows to its user."""
        if request.method != "POST":
            raise not_found(directory)
        sentence = "There is no login at this address. Send the header Authorization: Bearer KEY, or no key for free tools."
        return JSONResponse({"error": "invalid_request", "error_description": sentence}, 404)

    return [
        own_page(["GET"], "/v1/{building}", describe, name=DESCRIPTION),
        own_page(["GET"], "/errors", explain_all),
        own_page(["GET"], "/errors/{code}", explain),
        own_page([ANY], "/register", refuse_registration),
        answers_page(layout),
    ]


def answers_page(layout: Layout) -> RouteEntry:
    """Where the answers to forms are shown."""
    return own_page(["GET"], f"{ANSWERS}/{{name}}", layout.show_answer)


def page_entry(page: Page, site: Site[Any, Any], layout: Layout, visitors: object) -> RouteEntry:
    site = replace(site, visitors=visitors)

    async def answer(request: Request) -> Response:
        context_of(request.scope).site = site
        # no database stores NUL as text: a name with it is one that nothing has
        request.scope["path_params"] = {name: text.replace("\0", "\ufffd") for name, text in request.path_params.items()}
        if page.cross_site:
            layout.note_form(request)
        elif request.method not in ("GET", "HEAD"):
            await layout.checked_form(request, repeats=page.repeats)
        return await respond(request)

    async def respond(request: Request) -> Response:
        response = await page.answer(request, site)
        if not isinstance(response, Response):
            raise TypeError(f"the page {page.path} returned a {type(response).__name__}; return site.page(…), or a Response")
        return response

    return own_page(page.methods, page.path, answer, name=f"the page {page.path} of {site.name}")


def own_page(methods: Sequence[str], path: str, answer: Callable[[Request], Awaitable[Response]], *, name: str | None = None) -> RouteEntry:
    served = (*methods, "HEAD") if "GET" in methods else tuple(methods)
    return RouteEntry(served, path, answering(answer, route=path), name or f"campus's page {path}")


def answering(answer: Callable[[Request], Awaitable[Response]], *, route: str | None = None) -> ASGIApp:
    """A function of the request as an ASGI app; a Problem that it raises is the answer. `route` is its name in the log and the metrics."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        context_of(scope).route = route
        try:
            response = await answered(request, answer)
        except Problem as problem:
            response = problem_response(problem, request)
        await response(scope, receive, send)

    return app


def exposed_app(routes: Sequence[BaseRoute], directory: Directory) -> ASGIApp:
    """The custom routes of authors' servers. An address that none of them has is answered with a 404 that says where to look."""

    async def nothing(request: Request) -> Response:
        raise not_found(directory)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return problem_response(not_found(directory) if error.status_code == 404 else _from_starlette(error), request)

    async def problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return problem_response(error, request)

    if not routes:
        return answering(nothing)
    router = Router(routes=list(routes), redirect_slashes=False)
    app = ExceptionMiddleware(router, handlers={Problem: problem, HTTPException: refused})

    async def within(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = router  # with an app in the scope, routes raise their errors instead of answering in plain text
        await app(scope, receive, send)

    return within


def not_found(directory: Directory) -> Problem:
    gateway = directory.building("gateway")
    look = f"; {directory.url}/v1/gateway/list_buildings lists every address" if gateway else f"; see {directory.url}/v1/openapi.json"
    return Problem(404, "not_found", f"there is nothing at this address{look}")


def _from_starlette(error: HTTPException) -> Problem:
    code = "method_not_allowed" if error.status_code == 405 else "invalid_request"
    return Problem(error.status_code, code, error.detail, headers=dict(error.headers or {}))


def admin_app(
    metrics: Callable[[], Awaitable[bytes]],
    health: Health,
    *,
    listen: Listen,
    trusted_proxies: tuple[str, ...],
    pages: Sequence[RouteEntry] = (),
    problem_page: ProblemPage | None = None,
) -> ASGIApp:
    """The app of the operator's own listener: metrics, every sentence that the readiness checks found, and the operator's `pages`.

    The first two need no login. It answers to its own address and to loopback names, and no page of another origin reads it.
    """
    programs = {"/metrics": metrics_page(metrics), **health.operator_probes}

    async def nothing(request: Request) -> Response:
        raise Problem(404, "not_found", f"there is no page at this path; the pages are: {', '.join(sorted(programs))}")

    entries = [RouteEntry((ANY,), path, routed(path, page), f"the page {path}") for path, page in programs.items()]
    return Edge(
        RouteTable([*entries, *pages], missing=answering(nothing)),
        public_url=f"http://{listen}",
        port=listen.port,
        trusted_proxies=trusted_proxies,
        cross_origin=False,
        problem_page=problem_page,
    )


def routed(path: str, app: ASGIApp) -> ASGIApp:

    def named(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        context_of(scope).route = path
        return app(scope, receive, send)

    return named


def metrics_page(metrics: Callable[[], Awaitable[bytes]]) -> ASGIApp:

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(await metrics(), media_type=PROMETHEUS)(scope, receive, send)

    return page
