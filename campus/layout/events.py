"""Server-sent events by which a page updates itself: `changed` when it would look different, `ended` when it is no longer shown."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from math import inf
from weakref import WeakValueDictionary

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from campus.errors import StorageUnavailable
from campus.layout.forms import NOT_STORED
from campus.shares import Counts
from twins import Problem

LOOK_SECONDS = 2.0
"""How often the streams of a page look for changes, and whether their visitors may still see it. However many begin meanwhile, it is not
read twice within half of that."""
STREAM_SECONDS = 600.0  # A stream ends after this time; the browser opens the next one by itself.
STREAMS_PER_VISITOR = 8
STREAMS = 200  # Each stream is one of the thousand calls that a process has room for, most of which must stay free.
FORBIDDEN = (401, 402, 403)
HEADERS = {**NOT_STORED, "X-Accel-Buffering": "no"}
Fingerprint = Callable[[], Awaitable[bytes]]
Check = Callable[[], Awaitable[object]]


class SharedReading:
    """What a page shows, as a digest that `read` returns: read once for all streams of the page that look at about the same time."""

    def __init__(self, read: Fingerprint, *, look_seconds: float) -> None:
        self._read = read
        self.look_seconds = look_seconds
        self._turn = anyio.Lock()
        self._found: bytes | Exception = b""
        self.begun_at = -inf
        """When it was read last, by the clock of the event loop."""

    async def after(self, moment: float) -> bytes:
        """The digest as of a later time. Raises what `read` raised, also to those who shared it."""
        async with self._turn:
            if self.begun_at <= moment:
                await anyio.sleep(max(self.begun_at + self.look_seconds / 2 - anyio.current_time(), 0))
                now = anyio.current_time()
                try:
                    self._found = await self._read()
                except Exception as error:
                    self._found = error
                self.begun_at = now
            if isinstance(self._found, Exception):
                raise self._found.with_traceback(None)
            return self._found


class EventStreams:
    """The open streams of one process. A visitor has at most `most` of them, all visitors together `in_all`.

    The script of the layout follows a stream for the element that names it: `<div id="fleet" data-events="/fleet/events?seen=0a1b">`.
    The id of an event is the fingerprint of what the page shows. So a browser that comes back after a break learns of what it missed,
    and one that was never here of what changed since its page was made, whose fingerprint is `seen` in the query.
    """

    def __init__(self, *, most: int = STREAMS_PER_VISITOR, in_all: int = STREAMS) -> None:
        self._open: Counts[str] = Counts(in_all, most)
        self._readings: WeakValueDictionary[Hashable, SharedReading] = WeakValueDictionary()

    def __len__(self) -> int:
        return self._open.total

    def response(
        self,
        request: Request,
        visitor: str,
        fingerprint: Fingerprint,
        *,
        page: Hashable,
        check: Check,
        stopping: anyio.Event,
        look_seconds: float = LOOK_SECONDS,
    ) -> Response:
        """A stream for a visitor; Problem 429 at a limit. It ends when `stopping` is set.

        `fingerprint` returns a digest of what the page shows: the same to all who may see this `page`, a name of your choice, for whom it
        is read once. `check` tells whether this visitor still may. A Problem 401, 402 or 403 ends the stream; any other is waited out,
        and so is a lost database.
        """
        if not self._open.has_room(visitor):
            most, in_all = self._open.per_holder, self._open.limit
            mine = self._open[visitor] >= most
            whose = f"a visitor has at most {most}" if mine else f"all visitors together have at most {in_all}"
            detail = f"{whose} open streams of events; close a page that shows them, or try again later"
            raise Problem(429, "too_many_streams", detail, headers={"Retry-After": "30"})
        known = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        reading = self._readings.setdefault(page, SharedReading(fingerprint, look_seconds=look_seconds))
        return StreamingResponse(self._events(visitor, reading, check, known, stopping), media_type="text/event-stream", headers=HEADERS)

    async def _events(self, visitor: str, reading: SharedReading, check: Check, known: str, stopping: anyio.Event) -> AsyncIterator[bytes]:
        if not self._open.has_room(visitor):  # others began at the same moment
            return
        seen_at = anyio.current_time()
        ends_at = seen_at + STREAM_SECONDS  # no cancel scope, which must not be left by a `yield`
        with self._open.added(visitor):
            yield b"retry: 2000\n\n"
            while not stopping.is_set() and anyio.current_time() < ends_at:
                try:
                    await check()
                    seen = (await reading.after(seen_at)).hex()
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
                seen_at = max(seen_at, reading.begun_at)
                wait = reading.begun_at + reading.look_seconds - anyio.current_time()  # to the same moment for all streams of the page
                with anyio.move_on_after(wait if wait > 0 else reading.look_seconds):
                    await stopping.wait()
