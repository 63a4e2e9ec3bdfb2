"""The event streams of pages that update themselves: their limits, what a lost database does to them, and how they end."""

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from campus import EventStreams, Problem, StorageUnavailable

pytestmark = pytest.mark.anyio


def opened(streams: EventStreams, visitor: str, page: Callable[[], Awaitable[bytes]], stopping: anyio.Event) -> AsyncIterator[bytes]:
    """What a visitor's browser receives."""
    request = Request({"type": "http", "headers": [], "query_string": b"seen=00"})
    response = streams.response(request, visitor, page, stopping=stopping)
    assert isinstance(response, StreamingResponse)
    return aiter(response.body_iterator)  # type: ignore[arg-type]


async def test_a_stream_outlives_a_lost_database_and_ends_when_the_server_stops() -> None:
    answers: list[bytes | Exception] = [b"\0", StorageUnavailable("disk full"), Problem(503, "busy", "wait"), b"\1"]
    stopping = anyio.Event()

    async def page() -> bytes:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    stream = opened(EventStreams(look_seconds=0), "Ada", page, stopping)
    parts = [await anext(stream) for _ in range(5)]
    assert parts[1:] == [b": \n\n", *[b": not available at the moment\n\n"] * 2, b"id: 01\nevent: changed\ndata: \n\n"]
    stopping.set()
    assert [part async for part in stream] == []


async def test_one_visitor_takes_no_stream_from_another_and_all_together_no_call() -> None:
    stopping, streams = anyio.Event(), EventStreams(most=2, in_all=3)

    async def page() -> bytes:
        return b"\0"

    late = opened(streams, "Ada", page, stopping)
    both = [opened(streams, "Ada", page, stopping) for _ in range(2)]
    for stream in both:
        await anext(stream)
    assert [part async for part in late] == []
    with pytest.raises(Problem, match="a visitor has at most 2"):
        opened(streams, "Ada", page, stopping)
    await anext(other := opened(streams, "Bob", page, stopping))
    with pytest.raises(Problem, match="all visitors together have at most 3"):
        opened(streams, "Eve", page, stopping)
    stopping.set()
    for stream in (*both, other):
        assert [part async for part in stream] == []
    assert len(streams) == 0
