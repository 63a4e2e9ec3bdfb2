"""Server-sent events by which a page updates itself: `changed` when it would look different, `ended` when it is no longer shown."""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from campus.errors import StorageUnavailable
from campus.shares import Counts
from twins import Problem

LOOK_SECONDS = 2.0
"""How often a stream looks for changes, and whether its visitor may still see the page."""
STREAM_SECONDS = 600.0
"""A stream ends after this time; the browser opens the next one by itself."""
STREAMS_PER_VISITOR = 8
STREAMS = 200
"""Each stream is one of the thousand calls that a process has room for, most of which must stay free."""
FORBIDDEN = (401, 402, 403)
HEADERS = {"Cache-Control": "private, no-store", "X-Accel-Buffering": "no"}


class EventStreams:
    """The open streams of one process. A visitor has at most `most` of them, all visitors together `in_all`.

    The script of the layout follows a stream for the element that names it: `<div id="fleet" data-events="/fleet/events?seen=0a1b">`.
    The id of an event is the fingerprint of what the page shows. So a browser that comes back after a break learns of what it missed,
    and one that was never here of what changed since its page was made, whose fingerprint is `seen` in the query.
    """

    def __init__(self, *, most: int = STREAMS_PER_VISITOR, in_all: int = STREAMS, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._open: Counts[str] = Counts(in_all, most)

    def __len__(self) -> int:
        """How many streams are open."""
        return self._open.total

    def response(self, request: Request, visitor: str, fingerprint: Callable[[], Awaitable[bytes]], *, stopping: anyio.Event) -> Response:
        """A stream for a visitor; Problem 429 at a limit. It ends when `stopping` is set.

        `fingerprint` returns a digest of what the page shows. Its Problem 401, 402 or 403 ends the stream; any other is waited out, and
        so is a lost database.
        """
        if not self._open.has_room(visitor):
            most, in_all = self._open.per_holder, self._open.limit
            mine = self._open[visitor] >= most
            whose = f"a visitor has at most {most}" if mine else f"all visitors together have at most {in_all}"
            detail = f"{whose} open streams of events; close a page that shows them, or try again later"
            raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "30"})
        known = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        return StreamingResponse(self._events(visitor, fingerprint, known, stopping), media_type="text/event-stream", headers=HEADERS)

    async def _events(
        self, visitor: str, fingerprint: Callable[[], Awaitable[bytes]], known: str, stopping: anyio.Event
    ) -> AsyncIterator[bytes]:
        if not self._open.has_room(visitor):  # others began at the same moment
            return
        ends_at = anyio.current_time() + STREAM_SECONDS  # no cancel scope, which must not be left by a `yield`
        with self._open.added(visitor):
            yield b"retry: 2000\n\n"
            while not stopping.is_set() and anyio.current_time() < ends_at:
                try:
                    seen = (await fingerprint()).hex()
                except Problem as refused:
                    if refused.status in FORBIDDEN:
                        yield b"event: ended\ndata: \n\n"
                        return
                    yield b": not available at the moment\n\n"
                except StorageUnavailable:
                    yield b": not available at the moment\n\n"
                else:
                    name = "changed" if known else "ready"
                    yield b": \n\n" if seen == known else f"id: {seen}\nevent: {name}\ndata: \n\n".encode()
                    known = seen
                with anyio.move_on_after(self._look_seconds):
                    await stopping.wait()
