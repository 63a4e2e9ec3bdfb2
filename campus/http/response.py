"""What goes back to the caller: every response gets its request id and the headers that make browsers careful."""

from collections.abc import Awaitable, Iterable, Sequence

from starlette.types import Message, Send

from campus.http.refusal import send_problem
from twins import Problem

Header = tuple[bytes, bytes]

CAREFUL: Sequence[Header] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
HTTPS_ONLY: Header = (b"strict-transport-security", b"max-age=31536000")
ALLOW_ORIGIN = b"access-control-allow-origin"
VARY: Header = (b"vary", b"origin")
KEPT = 1_000
"""Headers of so many different responses are remembered, before all are forgotten."""


def careful_headers(public_url: str) -> Sequence[Header]:
    """The headers of every response; a response that sets one of them itself keeps its own."""
    return (*CAREFUL, HTTPS_ONLY) if public_url.startswith("https://") else CAREFUL


class SecurityHeaders:
    """Puts the careful headers beside a response's own.

    Most responses have the same ones as others before: what came of those is kept.
    """

    def __init__(self, careful: Sequence[Header]) -> None:
        self._careful = careful
        self._kept: dict[tuple[Header, ...], Sequence[Header]] = {}

    def of(self, given: Iterable[Header]) -> Sequence[Header]:
        """All headers but the request id."""
        own = tuple(given)
        try:
            dressed = self._kept.get(own)
        except TypeError:  # lists for pairs, which ASGI allows too
            return self._made(own)
        if dressed is None:
            if len(self._kept) == KEPT:
                self._kept.clear()
            dressed = self._kept[own] = self._made(own)
        return dressed

    def _made(self, own: Sequence[Header]) -> Sequence[Header]:
        names = dict(own)
        dressed = [*own, *(header for header in self._careful if header[0] not in names)]
        if b"no-store" not in names.get(b"cache-control", b"no-store") and ALLOW_ORIGIN not in names:
            dressed.append(VARY)  # with an Origin the same answer has more headers: a cache must not mix them up
        return tuple(dressed)


class Reply:
    """The response to one request, on its way out."""

    __slots__ = ("_dressing", "_send", "refused", "request_id", "status")

    def __init__(self, send: Send, dressing: SecurityHeaders, request_id: str) -> None:
        self._send = send
        self._dressing = dressing
        self.request_id = request_id
        self.status = 0
        """The status that went out; 0 before."""
        self.refused = False
        """Whether the edge has answered in the app's place: what the app sends goes nowhere."""

    def send(self, message: Message) -> Awaitable[None]:
        """ASGI's send for the app. Not a coroutine itself: that saves one per message."""
        return self._send(self._dressed(message) if message["type"] == "http.response.start" else message)

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem in the app's place; when its response is already on the way, only stop it."""
        self.refused = True
        refusal, self._send = Reply(self._send, self._dressing, self.request_id), _to_nobody
        if not self.status:
            self.status = problem.status
            await send_problem(refusal.send, problem, self.request_id)

    def _dressed(self, message: Message) -> Message:
        """A copy, since apps send the same message or list of headers again and again."""
        self.status = message["status"]
        headers = self._dressing.of(message.get("headers", ()))
        return {**message, "headers": [*headers, (b"x-request-id", self.request_id.encode("ascii"))]}


async def _to_nobody(message: Message) -> None:
    """Where a refused app's messages go."""
