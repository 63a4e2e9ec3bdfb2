"""Campus's own pages: what describes the service, explains errors, and answers whoever asks at the wrong door."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.building import Page
from campus.counters import Counters
from campus.directory import Directory
from campus.errors import EXPLAINED_AT
from campus.opening import Opened
from campus.site import ROUTE, SITE, Site
from twins import Entry, Problem
from twins.fastmcp_internals import author_routes

PROBLEM_JSON = "application/problem+json"

EXPLANATIONS: Mapping[str, str] = {
    "access_required": "The tool is not free. `unlock` lists each key that opens it, its price and where to get it.",
    "key_unknown": "The key that was sent is not known here. Check that it was copied whole, or send another.",
    "key_expired": "The term of the key that was sent is over. `unlock` lists the keys that open the tool.",
    "key_revoked": "The key that was sent was revoked. `unlock` lists the keys that open the tool.",
    "insufficient_scope": "The key that was sent is for other tools. `unlock` names the key to add.",
    "invalid_payment": "What was sent as a payment cannot be read as one: broken, too large, or of the other version. Nothing is charged.",
    "payment_refused": "The payment does not fit the terms, or is not good; `error` says why, and the terms are fresh. Nothing is charged.",
    "payment_unverified": "The facilitator cannot be asked just now. Nothing is charged; send the same payment again after Retry-After.",
    "payment_in_flight": "The payment is being worked on, or its outcome is not known yet. Send the very same one again after Retry-After.",
    "payment_already_used": "The payment was spent: on another call, with another key, or too long ago. Sign a new one.",
    "idempotency_key_required": "The answer is a secret, so a payment for it wants an Idempotency-Key of 22 or more random characters.",
    "invalid_request": "One or more arguments are missing, unknown or of the wrong type; `errors` names each.",
    "invalid_json": "The request body is not JSON that can be taken: broken, too deep, or with values such as NaN.",
    "invalid_date": "A date is not a calendar day written YYYY-MM-DD.",
    "invalid_cve_id": "A CVE identifier is not of the form CVE-<year>-<number>.",
    "no_data_for_date": "There is no list for that day.",
    "idempotency_key_reused": "The Idempotency-Key was sent before with another request; make a new one for a new request.",
    "key_not_sold": "The key cannot be sold or renewed as asked; `detail` says why. Nothing was charged.",
    "monitor_not_found": "There is no such monitor, or the secret is not its own: which of the two is not told.",
    "taken_over": "Another agent took this monitor over; its secret is another now.",
    "stale_seq": "A capsule with a higher seq was stored before; this one was not.",
    "not_dead": "Only a dead monitor can be taken over.",
    "target_in_use": "Without a key each alert target has one monitor; this target has one.",
    "monitor_limit_reached": "The key has as many monitors as it may have; delete one first.",
    "target_refused": "The webhook's address breaks a rule; `detail` names it.",
    "no_mail_here": "This service sends no e-mail; give a webhook instead.",
    "too_many_beats": "The monitor beats more often than is taken; beat again after the time in Retry-After.",
    "too_many_confirmations": "The key asked enough e-mail addresses for their consent today; go on tomorrow.",
    "badge_not_found": "There is no such badge; register_monitor and fleet_status tell its address.",
    "link_not_found": "The link leads nowhere any more; see that it was copied whole.",
    "capsule_too_large": "A capsule is at most 32,768 bytes of compact JSON; the last one is kept.",
    "no_list_yet": "No list was made yet; try again after the time in Retry-After.",
    "forbidden": "The caller may not use the tool.",
    "not_found": "There is nothing at this address.",
    "method_not_allowed": "The address does not take this method; the Allow header lists those it takes.",
    "unexpected_body": "DELETE takes its arguments in the query, and no body.",
    "unsupported_media_type": "Send the body as application/json, without Content-Encoding.",
    "too_large": "The body is larger than what the tool takes.",
    "body_too_large": "The body is larger than what is taken here.",
    "body_timeout": "The body did not arrive in time.",
    "head_too_large": "The request line and headers are larger than what is taken here.",
    "invalid_http": "The request is not HTTP/1.1 as it should be.",
    "invalid_host": "The request has no Host header, or more than one.",
    "misdirected_request": "The Host of the request is none that is served here.",
    "input_required": "The tool asks its caller back, which HTTP has no way for; call it over MCP.",
    "tool_error": "The tool refused the call; `detail` says why.",
    "timeout": "The tool took too long.",
    "upstream_failed": "The tool is another server's, which did not answer as it should. Try again later.",
    "internal_error": "The fault is on this side. `request_id` names the request in the server's log.",
    "storage_unavailable": "The data cannot be reached at the moment; try again after the time in Retry-After.",
    "overloaded": "Too many calls are being answered; try again after the time in Retry-After.",
}


def problem_response(problem: Problem, request: Request) -> Response:
    """A problem over HTTP."""
    body = problem.body(types=EXPLAINED_AT, request_id=request.scope.get("request_id"))
    return JSONResponse(body, problem.status, headers=problem.headers, media_type=PROBLEM_JSON)


def own_routes(directory: Directory, documents: Mapping[str, dict[str, Any]], counters: Counters) -> list[Route]:
    """The routes of campus itself; `documents` are the OpenAPI documents by their path."""

    async def describe(request: Request) -> Response:
        entry = directory.building(request.path_params["building"])
        if entry is None:
            raise not_found(directory)
        return JSONResponse({"ok": True, **entry.model_dump(mode="json")})

    async def explain(request: Request) -> Response:
        code = request.path_params["code"]
        if code not in EXPLANATIONS:
            return JSONResponse({"code": code, "explanation": "A building's own code: the problem's detail says what is wrong."})
        return JSONResponse({"code": code, "explanation": EXPLANATIONS[code]})

    async def metrics(request: Request) -> Response:
        if not is_loopback(request):
            raise not_found(directory)
        return Response(counters.page(), media_type="text/plain; version=0.0.4")

    return [
        *(Route(path, constant(JSONResponse(document))) for path, document in documents.items()),
        Route("/v1/{building}", describe),
        Route("/errors/{code}", explain),
        Route("/metrics", metrics),
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


def page_entries(opened: Opened, site: Site[Any, Any]) -> list[Entry]:
    """A building's pages for the table of routes; each is given the building's site."""
    return [_page_entry(page, site) for page in opened.loaded.building.pages]


def _page_entry(page: Page, site: Site[Any, Any]) -> Entry:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        scope[SITE], scope[ROUTE] = site, page.path
        try:
            response = await page.answer(request, site)
        except Problem as problem:
            response = problem_response(problem, request)
        await response(scope, receive, send)

    return Entry(page.methods, page.path, app, f"the page {page.path} of {site.name}")


def exposed_routes(opened: Opened) -> list[BaseRoute]:
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


def is_loopback(request: Request) -> bool:
    """Whether the caller is on this machine."""
    return request.client is not None and request.client.host not in ("", "testclient") and ip_address(request.client.host).is_loopback
