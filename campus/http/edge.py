"""The edge, the outermost ASGI app, which every request and every response passes through."""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from random import Random
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.addresses import LOOPBACK_PROXIES
from campus.config import LARGEST_BODY, LARGEST_WHOLE_BODY
from campus.context import context_of
from campus.errors import StorageUnavailable
from campus.http.hosts import Hosts, Proxies
from campus.http.limits import (
    BODY_SECONDS,
    CALLS,
    TOO_MANY_CALLS,
    WAITING_SHARE,
    BodyBounds,
    LimitedBody,
    WaitingCalls,
    body_problem,
    has_body,
    is_small,
)
from campus.http.response import OutgoingResponse, PageResponse, SecurityHeaders, caller_of, with_cors
from campus.layout.accept import page_form
from campus.layout.renderer import ProblemPage
from campus.observability.metrics import RequestMetrics
from campus.problems import storage_problem
from twins import Problem

log = logging.getLogger(__name__)
access = logging.getLogger("campus.access")

CALLER_LEFT = 499
"""The status in the access log and the metrics of a call whose caller left before the response; nobody receives it."""
SAFE_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
LOGGED_SEGMENTS = 2
ANY_SIZE = 10**15


class Edge:
    """Checks a request's Host and sizes before `app` sees it, and turns what `app` raises into a problem.

    It sets `scope["request_id"]`. For the log and the metrics it reads the request's context: the template of the route that answered
    (else the one that Starlette found), and the status of a problem that is a tool's result over MCP. Paths themselves are never
    logged: they hold secrets. `probes`, by exact path, are
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
        body_bytes: int = LARGEST_BODY,
        whole_bodies: Collection[str] = (),
        any_bodies: tuple[str, ...] = (),
        body_seconds: float = BODY_SECONDS,
        calls: int = CALLS,
        cross_origin: bool = True,
        problem_page: ProblemPage | None = None,
        trusted_proxies: Collection[str] = LOOPBACK_PROXIES,
        requests: RequestMetrics | None = None,
    ) -> None:
        """`whole_bodies` are paths at which a gate may let a caller send a larger body. Paths that begin as one of `any_bodies` are
        answered whatever the size of the body; one over the limit is not read.

        `calls` is how many may run at once; further ones get 503. `port` is the one that is listened on.

        `more_urls` are addresses of further hosts that are served.

        `cross_origin` lets web pages of any origin read the responses if the public URL is https; otherwise those of origins that are
        not this machine's or the service's own are refused. Without it browsers allow reading to the app's own pages only.
        With a `problem_page` a browser receives every problem as a page. X-Forwarded-For is read when a connection comes from an
        address or network of `trusted_proxies`. `requests` counts them.
        """
        self._app = app
        self._cors_app = with_cors(app) if cross_origin else app
        self._hosts = Hosts(public_url, *more_urls, port=port)
        self._is_local = cross_origin and not public_url.startswith("https://")
        self._headers = SecurityHeaders(public_url)
        self._cors_headers = SecurityHeaders(public_url, any_origin=True) if cross_origin else self._headers
        self._probes = probes or {}
        self._whole_bodies = frozenset(whole_bodies)
        self._any_bodies = any_bodies
        self._calls_limit = calls
        self._requests = requests or RequestMetrics()
        self._bodies = BodyBounds(body_bytes, body_seconds, WaitingCalls(limit=max(calls // WAITING_SHARE, 1)))
        self._problem_page = problem_page
        self._proxies = Proxies(trusted_proxies)
        self._new_id = random_ids()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        with_body = has_body(headers)
        body: LimitedBody | None = None
        if b"x-forwarded-for" in headers or b"x-forwarded-proto" in headers:
            await self._proxies.read(scope)
        refusal = self._hosts.origin_problem(headers) if self._is_local and b"origin" in headers else None
        response = self._response_to(scope, headers, send, is_readable=b"origin" in headers and refusal is None)
        context = context_of(scope)
        started_at = perf_counter()
        self._requests.running += 1
        try:
            if (probe := self._probes.get(scope["path"])) is not None:
                context.route = scope["path"]
                await probe(scope, receive, response.send)
            elif self._requests.running > self._calls_limit:
                await response.refuse(TOO_MANY_CALLS)
            elif problem := self._hosts.problem(scope, headers) or refusal or (with_body and self._body_problem(scope, headers)):
                await response.refuse(problem)
            else:
                if with_body and not is_small(scope, headers):
                    announced = body_problem(headers, self._bodies.size)
                    body = LimitedBody(receive, response, self._bodies, announced=announced, client=caller_of(scope.get("client")))
                    receive, context.allow_body = body.receive, body.allow
                app = self._cors_app if b"origin" in headers else self._app
                await app(scope, receive, response.send)
        except Exception as error:
            await self._answer_error(scope, response, error)
        finally:
            if body is not None:
                body.release()
            seconds = perf_counter() - started_at
            self._requests.running -= 1
            route = context.route or route_of(scope)
            self._requests.add(route, scope["method"], context.status or response.status or CALLER_LEFT, seconds)
            if access.isEnabledFor(logging.INFO):
                self._log_access(scope, headers, response, seconds)

    def _response_to(self, scope: Scope, headers: Mapping[bytes, bytes], send: Send, *, is_readable: bool) -> OutgoingResponse:
        """The response to be sent, under the request's id; `is_readable` by a page of the request's Origin."""
        sent_id = headers.get(b"x-request-id")
        scope["request_id"] = request_id = sent_id.decode() if sent_id and SAFE_ID.fullmatch(sent_id) else self._new_id()
        security = self._cors_headers if is_readable else self._headers
        if self._problem_page is not None and (form := page_form(headers.get(b"accept"))) is not None:
            return PageResponse(send, security, request_id, page=self._problem_page, form=form, scope=scope)
        return OutgoingResponse(send, security, request_id, context_of(scope))

    def _body_problem(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
        if scope["path"].startswith(self._any_bodies):
            return body_problem(headers, ANY_SIZE)
        return body_problem(headers, LARGEST_WHOLE_BODY if scope["path"] in self._whole_bodies else self._bodies.size)

    async def _answer_error(self, scope: Scope, response: OutgoingResponse, error: Exception) -> None:
        """The border: an error that the app lets through is logged, and the caller gets a problem without its text."""
        if response.refused:
            return  # the app failed on a request that was already refused
        if isinstance(error, ClientDisconnect):
            response.status = CALLER_LEFT
            return
        data = {"request_id": response.request_id, "method": scope["method"], "route": loggable_route_of(scope)}
        if isinstance(error, StorageUnavailable):
            problem = storage_problem(error, log, **data)
        else:
            log.error("call failed", exc_info=error, extra=data)
            problem = Problem(500, "internal_error", "The call failed on our side; quote the request id when you report it.")
        await response.refuse(problem)

    def _log_access(self, scope: Scope, headers: dict[bytes, bytes], response: OutgoingResponse, seconds: float) -> None:
        context = context_of(scope)
        data = {
            "client": caller_of(scope.get("client")),
            "method": scope["method"],
            "route": route_of(scope) or "-",
            "status": context.status or response.status or CALLER_LEFT,
            "ms": round(seconds * 1000, 1),
            "request_id": response.request_id,
        }
        if context.caller is not None and context.caller.key is not None:
            data["key"] = context.caller.key.id
        if trace := trace_id_of(headers.get(b"traceparent")):
            data["trace"] = trace
        access.info("request", extra=data)


def random_ids() -> Callable[[], str]:
    """A source of request ids: 24 hex digits each. They are names, not secrets, so a fast generator is enough."""
    bits = Random().getrandbits  # noqa: S311 - see above

    def new_id() -> str:
        return bits(96).to_bytes(12).hex()

    return new_id


def trace_id_of(traceparent: bytes | None) -> str | None:
    found = TRACEPARENT.fullmatch(traceparent or b"")
    return found[1].decode("ascii") if found else None


def route_of(scope: Scope) -> str | None:
    route: str | None = context_of(scope).route or getattr(scope.get("route"), "path", None)
    return route


def loggable_route_of(scope: Scope) -> str:
    """The route's template, else the first segments of the path: the rest of a path may hold a secret."""
    return route_of(scope) or "/".join(scope["path"].split("/")[: LOGGED_SEGMENTS + 1])
