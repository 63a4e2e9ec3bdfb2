"""The edge: the outermost ASGI app, through which every request and every response goes."""

import logging
from collections.abc import Callable, Collection, Mapping
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.addresses import LOOPBACK_PROXIES
from campus.errors import StorageUnavailable
from campus.http.cors import READABLE, open_to_all
from campus.http.hosts import Hosts
from campus.http.limits import BODY_BYTES, BODY_SECONDS, CALLS, BodyGuard, body_problem, has_body, too_many
from campus.http.proxies import Proxies
from campus.http.request_ids import caller_of, random_ids, request_id_of, trace_id_of
from campus.http.response import Reply, SecurityHeaders, careful_headers
from campus.problems import storage_unavailable
from twins import Problem

log = logging.getLogger(__name__)
access = logging.getLogger("campus.access")

GONE = 499  # the caller left before the answer; only ever seen in the access log
SHOWN_SEGMENTS = 2


class Edge:
    """Guards `app`: its Host, its sizes, its crashes; and dresses what it answers.

    It sets `scope["request_id"]`, and reads `scope["campus.route"]`, the template of the route that answered, for the log;
    where that is not set, the route that Starlette found.
    Paths themselves are never logged: they hold secrets. `probes`, by exact path, are answered whatever the Host
    and however busy the server.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        public_url: str,
        port: int,
        probes: Mapping[str, ASGIApp] | None = None,
        body_bytes: int = BODY_BYTES,
        body_seconds: float = BODY_SECONDS,
        calls: int = CALLS,
        cross_origin: bool = True,
        trusted_proxies: Collection[str] = LOOPBACK_PROXIES,
        new_id: Callable[[], str] | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        """`calls` is how many may run at once; more get 503. `port` is the one that is listened on.

        `cross_origin` lets web pages of any origin read the answers; without it browsers keep them from all but the app's own.
        X-Forwarded-For is believed when a connection comes from an address or network of `trusted_proxies`.
        """
        self._app = app
        self._from_other_origin = open_to_all(app) if cross_origin else app
        self._hosts = Hosts(public_url, port=port)
        careful = careful_headers(public_url)
        self._dressing = SecurityHeaders(careful)
        self._dressing_abroad = SecurityHeaders((*careful, READABLE)) if cross_origin else self._dressing
        self._probes = probes or {}
        self._body_bytes = body_bytes
        self._body_seconds = body_seconds
        self._calls_limit = calls
        self._calls = 0
        self._proxies = Proxies(trusted_proxies)
        self._new_id = new_id or random_ids()
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; anything but HTTP gets nothing."""
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if b"x-forwarded-for" in headers or b"x-forwarded-proto" in headers:
            await self._proxies.read(scope)
        foreign = b"origin" in headers
        sent_id = headers.get(b"x-request-id")
        scope["request_id"] = request_id = request_id_of(sent_id, self._new_id) if sent_id else self._new_id()
        reply = Reply(send, self._dressing_abroad if foreign else self._dressing, request_id)
        logged = access.isEnabledFor(logging.INFO)
        began = self._clock() if logged else 0.0
        self._calls += 1
        try:
            if (probe := self._probes.get(scope["path"])) is not None:
                await probe(scope, receive, reply.send)
            elif self._calls > self._calls_limit:
                await reply.refuse(too_many())
            elif (problem := self._hosts.refusal(scope, headers) or body_problem(headers, self._body_bytes)) is not None:
                await reply.refuse(problem)
            else:
                if has_body(headers):
                    receive = BodyGuard(receive, reply, limit=self._body_bytes, seconds=self._body_seconds).receive
                await (self._from_other_origin if foreign else self._app)(scope, receive, reply.send)
        except Exception as error:
            await self._failed(scope, reply, error)
        finally:
            self._calls -= 1
            if logged:
                self._note(scope, headers, reply, self._clock() - began)

    async def _failed(self, scope: Scope, reply: Reply, error: Exception) -> None:
        """The border: whatever the app lets through is logged, and told to the caller without its text."""
        if reply.refused:
            return  # the app stumbled over a request that was already refused
        if isinstance(error, ClientDisconnect):
            reply.status = GONE
            return
        data = {"request_id": reply.request_id, "method": scope["method"], "route": place_of(scope)}
        if isinstance(error, StorageUnavailable):
            log.warning("storage unavailable: %s", error, extra=data)
            problem = storage_unavailable()
        else:
            log.error("call failed", exc_info=error, extra=data)
            problem = Problem(500, "internal_error", "The call failed on our side; quote the request id when you report it.")
        await reply.refuse(problem)

    def _note(self, scope: Scope, headers: dict[bytes, bytes], reply: Reply, seconds: float) -> None:
        data = {
            "client": caller_of(scope.get("client")),
            "method": scope["method"],
            "route": route_of(scope) or "-",
            "status": reply.status or GONE,
            "ms": round(seconds * 1000, 1),
            "request_id": reply.request_id,
        }
        if trace := trace_id_of(headers.get(b"traceparent")):
            data["trace"] = trace
        access.info("request", extra=data)


def route_of(scope: Scope) -> str | None:
    """The template of the route that answered: a twin's, a page's, an MCP endpoint's, or `building:tool` over MCP."""
    route: str | None = scope.get("campus.route") or getattr(scope.get("route"), "path", None)
    return route


def place_of(scope: Scope) -> str:
    """Where a call went, as far as may be logged: the route's template, else the first segments of the path."""
    return route_of(scope) or "/".join(scope["path"].split("/")[: SHOWN_SEGMENTS + 1])
