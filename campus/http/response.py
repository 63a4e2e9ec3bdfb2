"""What every response passes through: security headers, CORS, the request's id, and problems as pages for browsers."""

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence

import orjson
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Scope, Send

from campus.context import Context, context_of
from campus.installed import installed_features
from campus.layout.accept import Form
from campus.layout.renderer import ProblemPage, problem_headers
from campus.problems import EXPLAINED_AT
from twins import Answer, Problem, problem_answer, send_answer

Header = tuple[bytes, bytes]
CACHED_RESPONSES = 1_000
LONGEST_KEPT = 8_192
"""Bytes of headers that are kept. Longer ones repeat what a caller sent, such as a query in a Location: they would take 100 MB."""
SECURITY: Sequence[Header] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer browsers would not say that a page's own form is of its origin
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
HTTPS_ONLY: Header = (b"strict-transport-security", b"max-age=31536000")
JSON = ((b"content-type", b"application/json"), (b"cache-control", b"no-store"))
ALLOW_ORIGIN = b"access-control-allow-origin"
ANY_ORIGIN: Header = (ALLOW_ORIGIN, b"*")
"""Also on the edge's own responses: without it a page could not tell a problem from a broken network."""
VARY: Header = (b"vary", b"origin")
REQUEST_ID = b"x-request-id"
RATE_LIMIT = b"ratelimit"
CHANGING = frozenset((REQUEST_ID, RATE_LIMIT, b"ratelimit-policy"))
"""The headers at the end of a response's that are not the same as in others."""
TOO_MANY = 429
EXPOSED = (
    "ETag",
    "Location",
    "MCP-Protocol-Version",
    "Mcp-Session-Id",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
)
PREFLIGHT_SECONDS = 86_400
PROBLEM = (b"content-type", b"application/problem+json")
LONGEST_SHOWN = 10_000  # The bytes of the longest problem that is made a page: of 30 KB that need escapes this takes 40 ms.
REPLACED = frozenset({b"content-type", b"content-length", b"content-security-policy", b"cache-control", b"vary"})
"""Headers of a problem that its page has too, with other values."""
log = logging.getLogger(__name__)


def exposed() -> list[str]:
    """The headers that pages may read, with those of features, in alphabetical order."""
    return sorted({*EXPOSED, *(header for feature in installed_features().values() for header in feature.headers)}, key=str.lower)


def with_cors(app: ASGIApp) -> ASGIApp:
    """`app` for requests that carry an Origin: every page may read the answers, with any header, without credentials.

    Nothing is granted by cookies, so that any origin can be allowed; keys travel in a header. The request headers of a
    preflight are repeated, not listed: MCP-Param-… are named after a tool's parameters. A page of the public web that asks
    for a private address (Private Network Access) is refused.
    """
    anything = ("*",)
    return CORSMiddleware(
        app,
        allow_origins=anything,
        allow_methods=anything,
        allow_headers=anything,
        expose_headers=exposed(),
        max_age=PREFLIGHT_SECONDS,
    )


class SecurityHeaders:
    """Adds to a response the headers that make browsers careful; a header that the response sets itself stays as it is.

    Most responses have the same headers as others before, so the results for the latest `CACHED_RESPONSES` are kept.
    """

    def __init__(self, public_url: str, *, any_origin: bool = False) -> None:
        """`any_origin` is for requests of other origins: the response may be read by all of them."""
        https = (HTTPS_ONLY,) if public_url.startswith("https://") else ()
        self._added = (*SECURITY, *https, *((ANY_ORIGIN,) if any_origin else ()))
        self._cache: dict[tuple[Header, ...], Sequence[Header]] = {}

    def added_to(self, headers: Iterable[Header]) -> Sequence[Header]:
        own = tuple(headers)
        try:
            result = self._cache.get(own)
        except TypeError:  # a list, which ASGI allows too, cannot be a key of the cache
            return self._combined(own)
        if result is None:
            result = self._combined(own)
            if sum(len(name) + len(value) for name, value in result) <= LONGEST_KEPT:
                if len(self._cache) == CACHED_RESPONSES:
                    self._cache.clear()
                self._cache[own] = result
        return result

    def _combined(self, own: Sequence[Header]) -> Sequence[Header]:
        names = dict(own)
        result = [*own, *(header for header in self._added if header[0] not in names)]
        if b"no-store" not in names.get(b"cache-control", b"no-store") and ALLOW_ORIGIN not in names:
            result.append(VARY)  # with an Origin the same response has more headers: a cache must not mix them up
        return tuple(result)


class OutgoingResponse:
    __slots__ = ("_context", "_headers", "_send", "refused", "request_id", "status")

    def __init__(self, send: Send, headers: SecurityHeaders, request_id: str, context: Context) -> None:
        self._send = send
        self._headers = headers
        self._context = context
        self.request_id = request_id
        self.status = 0
        """The status that was sent; 0 before."""
        self.refused = False
        """True when the edge has answered in the app's place; what the app sends is then dropped."""

    def send(self, message: Message) -> Awaitable[None]:
        """ASGI's send for the app. Not a coroutine itself: that saves one per message."""
        return self._send(self._started(message) if message["type"] == "http.response.start" else message)

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem in the app's place; if the app's response has begun, only stop it."""
        self.refused = True
        refusal = self._anew()
        self._send = _drop
        if not self.status:
            self.status = problem.status
            await send_problem(refusal.send, problem, self.request_id)

    def _anew(self) -> "OutgoingResponse":
        return OutgoingResponse(self._send, self._headers, self.request_id, self._context)

    def _started(self, message: Message) -> Message:
        """A copy of the first message with all headers: apps send the same message again and again."""
        self.status = message["status"]
        own = message.get("headers", ())
        headers = self._headers.added_to(own)
        limits = self._context.rates
        if self.status == TOO_MANY and any(name.lower() == RATE_LIMIT for name, _ in own):
            limits = ()  # a tool's own limit is what the caller has reached
        return {**message, "headers": [*headers, *self._context.headers, *limits, (REQUEST_ID, self.request_id.encode("ascii"))]}


class PageResponse(OutgoingResponse):
    """The response to a caller who prefers HTML or Markdown: a problem is sent as a page with the same status and headers."""

    __slots__ = ("_body", "_form", "_page", "_scope", "_start")

    def __init__(self, send: Send, headers: SecurityHeaders, request_id: str, *, page: ProblemPage, form: Form, scope: Scope) -> None:
        super().__init__(send, headers, request_id, context_of(scope))
        self._page = page
        self._form = form
        self._scope = scope
        self._start: Message | None = None
        self._body = b""

    def send(self, message: Message) -> Awaitable[None]:
        """ASGI's send for the app; a problem is held back until its body is complete."""
        if message["type"] == "http.response.start" and PROBLEM in message.get("headers", ()):
            self._start = message
            return _drop(message)
        return super().send(message) if self._start is None else self._complete(message)

    async def _complete(self, message: Message) -> None:
        self._body += message.get("body", b"")
        if message.get("more_body") or self._start is None:
            return
        start, self._start = self._start, None
        body = self._body
        headers = list(start["headers"])
        if (page := self._rendered(headers)) is not None:
            kept = [header for header in headers if header[0] not in REPLACED]
            body = page
            headers = [*kept, *problem_headers(page, self._form)]
        await super().send({**start, "headers": headers})
        await super().send({"type": "http.response.body", "body": body})

    def _rendered(self, headers: Iterable[Header]) -> bytes | None:
        """The page; None for an answer without a body, to HEAD, for one that repeats much of what its caller sent, and if it cannot be
        made: then the problem is sent as it is."""
        if not self._body or len(self._body) > LONGEST_SHOWN:
            return None
        try:
            retry_after = dict(headers).get(b"retry-after", b"").decode("latin-1")
            return self._page(self._scope, orjson.loads(self._body), self._form, retry_after)
        except Exception:  # the border: an error about an error would leave the caller with neither
            log.exception("page of a problem not rendered", extra={"request_id": self.request_id})
            return None

    def _anew(self) -> OutgoingResponse:
        return PageResponse(self._send, self._headers, self.request_id, page=self._page, form=self._form, scope=self._scope)


async def _drop(message: Message) -> None: ...


async def send_problem(send: Send, problem: Problem, request_id: str | None) -> None:
    await send_answer(send, problem_answer(problem, types=EXPLAINED_AT, request_id=request_id))


async def send_json(send: Send, data: Mapping[str, object], *, status: int) -> None:
    await send_answer(send, Answer(status, orjson.dumps(data), JSON))


def caller_of(client: tuple[str, int] | None) -> str:
    return client[0] if client else "-"
