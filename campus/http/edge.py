"""The edge, the outermost ASGI app, which every request and every response passes through; and the router behind it."""

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from random import Random
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.addresses import LOOPBACK_PROXIES
from campus.errors import StorageUnavailable, storage_unavailable
from campus.http.hosts import Hosts, Proxies
from campus.http.limits import (
    BODY_BYTES,
    BODY_SECONDS,
    CALLS,
    WAITING_SHARE,
    LimitedBody,
    WaitingBodies,
    body_problem,
    has_body,
    too_many_calls,
)
from campus.http.response import OutgoingResponse, PageResponse, SecurityHeaders, caller_of, send_problem, with_cors
from campus.layout.accept import page_form
from campus.layout.renderer import ProblemPage
from twins import Problem, RouteTable

log = logging.getLogger(__name__)
access = logging.getLogger("campus.access")

CALLER_LEFT = 499
"""The status in the access log of a call whose caller left before the response; nobody receives it."""
MCP_METHODS = ("POST", "DELETE")
SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
LOGGED_SEGMENTS = 2


class Edge:
    """Checks a request's Host and sizes before `app` sees it, and turns what `app` raises into a problem.

    It sets `scope["request_id"]`. For the log it reads `scope["campus.route"]`, the template of the route that answered, or
    else the route that Starlette found. Paths themselves are never logged: they hold secrets. `probes`, by exact path, are
    answered for any Host and however busy the server is.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        public_url: str,
        port: int,
        more_urls: Collection[str] = (),
        probes: Mapping[str, ASGIApp] | None = None,
        body_bytes: int = BODY_BYTES,
        body_seconds: float = BODY_SECONDS,
        calls: int = CALLS,
        cross_origin: bool = True,
        problem_page: ProblemPage | None = None,
        trusted_proxies: Collection[str] = LOOPBACK_PROXIES,
        new_id: Callable[[], str] | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`calls` is how many may run at once; further ones get 503. `port` is the one that is listened on.

        `more_urls` are addresses of further hosts that are served.

        `cross_origin` lets web pages of any origin read the responses; without it browsers allow that to the app's own pages only.
        With a `problem_page` a browser receives every problem as a page. X-Forwarded-For is read when a connection comes from an
        address or network of `trusted_proxies`.
        """
        self._app = app
        self._cors_app = with_cors(app) if cross_origin else app
        self._hosts = Hosts(public_url, *more_urls, port=port)
        self._headers = SecurityHeaders(public_url)
        self._cors_headers = SecurityHeaders(public_url, any_origin=True) if cross_origin else self._headers
        self._probes = probes or {}
        self._body_bytes = body_bytes
        self._body_seconds = body_seconds
        self._calls_limit = calls
        self._calls = 0
        self._waiting = WaitingBodies(limit=max(calls // WAITING_SHARE, 1))
        self._problem_page = problem_page
        self._proxies = Proxies(trusted_proxies)
        self._new_id = new_id or random_ids()
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; anything but HTTP is ignored."""
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if b"x-forwarded-for" in headers or b"x-forwarded-proto" in headers:
            await self._proxies.read(scope)
        has_origin = b"origin" in headers
        sent_id = headers.get(b"x-request-id")
        scope["request_id"] = request_id = request_id_of(sent_id, self._new_id) if sent_id else self._new_id()
        response_headers = self._cors_headers if has_origin else self._headers
        response = OutgoingResponse(send, response_headers, request_id)
        if self._problem_page is not None and (form := page_form(headers.get(b"accept"))) is not None:
            response = PageResponse(send, response_headers, request_id, page=self._problem_page, form=form, scope=scope)
        is_logged = access.isEnabledFor(logging.INFO)
        started_at = self._clock() if is_logged else 0.0
        self._calls += 1
        try:
            if (probe := self._probes.get(scope["path"])) is not None:
                scope["campus.route"] = scope["path"]
                await probe(scope, receive, response.send)
            elif self._calls > self._calls_limit:
                await response.refuse(too_many_calls())
            elif (problem := self._hosts.problem(scope, headers) or body_problem(headers, self._body_bytes)) is not None:
                await response.refuse(problem)
            else:
                if has_body(headers):
                    receive = LimitedBody(
                        receive,
                        response,
                        limit=self._body_bytes,
                        seconds=self._body_seconds,
                        waiting=self._waiting,
                        client=scope.get("client"),
                    ).receive
                await (self._cors_app if has_origin else self._app)(scope, receive, response.send)
        except Exception as error:
            await self._answer_error(scope, response, error)
        finally:
            self._calls -= 1
            if is_logged:
                self._log_access(scope, headers, response, self._clock() - started_at)

    async def _answer_error(self, scope: Scope, response: OutgoingResponse, error: Exception) -> None:
        """The border: an error that the app lets through is logged, and the caller gets a problem without its text."""
        if response.refused:
            return  # the app failed on a request that was already refused
        if isinstance(error, ClientDisconnect):
            response.status = CALLER_LEFT
            return
        data = {"request_id": response.request_id, "method": scope["method"], "route": loggable_route_of(scope)}
        if isinstance(error, StorageUnavailable):
            log.warning("storage unavailable: %s", error, extra=data)
            problem = storage_unavailable()
        else:
            log.error("call failed", exc_info=error, extra=data)
            problem = Problem(500, "internal_error", "The call failed on our side; quote the request id when you report it.")
        await response.refuse(problem)

    def _log_access(self, scope: Scope, headers: dict[bytes, bytes], response: OutgoingResponse, seconds: float) -> None:
        data = {
            "client": caller_of(scope.get("client")),
            "method": scope["method"],
            "route": route_of(scope) or "-",
            "status": response.status or CALLER_LEFT,
            "ms": round(seconds * 1000, 1),
            "request_id": response.request_id,
        }
        if trace := trace_id_of(headers.get(b"traceparent")):
            data["trace"] = trace
        access.info("request", extra=data)


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
            scope["campus.route"] = path
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
    scope["campus.route"] = scope["path"]
    detail = (
        "This is the address of an MCP server (streamable HTTP): add it to an MCP client, which sends POST requests."
        " The same tools can be called over plain HTTP; /v1/openapi.json describes the routes."
    )
    problem = Problem(405, "method_not_allowed", detail, headers={"Allow": ", ".join(MCP_METHODS)})
    return send_problem(send, problem, scope.get("request_id"))


def random_ids() -> Callable[[], str]:
    """A source of request ids: 24 hex digits each. They are names, not secrets, so a fast generator is enough."""
    bits = Random().getrandbits  # noqa: S311 - see above

    def new_id() -> str:
        return bits(96).to_bytes(12).hex()

    return new_id


def request_id_of(sent: bytes | None, new_id: Callable[[], str]) -> str:
    """The caller's X-Request-Id when it is safe to repeat, else a new one."""
    if sent is not None and SAFE_ID.fullmatch(sent):
        return sent.decode("ascii")
    return new_id()


def trace_id_of(traceparent: bytes | None) -> str | None:
    """The trace that a W3C traceparent header names; None without a well-formed one."""
    found = TRACEPARENT.fullmatch(traceparent or b"")
    return found[1].decode("ascii") if found else None


def route_of(scope: Scope) -> str | None:
    """The template of the route that answered: a twin's, a page's, an MCP endpoint's, or `building:tool` over MCP."""
    route: str | None = scope.get("campus.route") or getattr(scope.get("route"), "path", None)
    return route


def loggable_route_of(scope: Scope) -> str:
    """The route's template, else the first segments of the path: the rest of a path may hold a secret."""
    return route_of(scope) or "/".join(scope["path"].split("/")[: LOGGED_SEGMENTS + 1])
