"""The event streams of pages that update themselves: their limits, what a lost database does to them, and how they end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import pairwise

import anyio
import pytest
from patience import patience
from starlette.requests import Request
from starlette.responses import StreamingResponse

from campus import Problem
from campus.errors import StorageUnavailable
from campus.layout import EventStreams

pytestmark = pytest.mark.anyio
LOOKS = 6


async def welcome() -> None:
    """The check of a visitor who may see the page."""


def opened(
    streams: EventStreams,
    visitor: str,
    page: Callable[[], Awaitable[bytes]],
    stopping: anyio.Event,
    check: Callable[[], Awaitable[None]] = welcome,
) -> AsyncIterator[bytes]:
    request = Request({"type": "http", "headers": [], "query_string": b"seen=00"})
    response = streams.response(request, visitor, page, page="fleet", check=check, stopping=stopping, look_seconds=0.05)
    assert isinstance(response, StreamingResponse)
    return aiter(response.body_iterator)  # type: ignore[arg-type]


async def test_a_stream_outlives_a_lost_database_and_ends_when_the_server_stops() -> None:
    answers: list[bytes | Exception] = [b"\0", StorageUnavailable("disk full"), Problem(503, "busy", "wait"), b"\1"]
    stopping = anyio.Event()

    async def page() -> bytes:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    stream = opened(EventStreams(), "Ada", page, stopping)
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


async def test_all_streams_of_a_page_share_each_reading_and_each_ends_with_its_own_visitor() -> None:
    stopping, streams, read, ended = anyio.Event(), EventStreams(), list[float](), set[str]()

    async def page() -> bytes:
        read.append(anyio.current_time())
        await anyio.sleep(0.01)
        if len(read) == 3:
            raise StorageUnavailable("disk full")
        return len(read).to_bytes()

    async def check(visitor: str) -> None:
        if visitor in ended:
            raise Problem(402, "key_revoked", "ended")

    async def seen(visitor: str, told: list[bytes]) -> None:
        async for part in opened(streams, visitor, page, stopping, partial(check, visitor)):
            told.append(part)
            if len(told) == LOOKS:
                ended.add(visitor)

    begun_at = anyio.current_time()
    received: dict[str, list[bytes]] = {f"visitor {number}": [] for number in range(20)}
    with anyio.fail_after(patience(20)):
        async with anyio.create_task_group() as tasks:
            for visitor, told in received.items():
                tasks.start_soon(seen, visitor, told)
                await anyio.sleep(0.002)
    assert {told[-1] for told in received.values()} == {b"event: ended\ndata: \n\n"}
    assert len(read) <= (anyio.current_time() - begun_at) / 0.05 + 3, "streams that began at different times read for themselves"
    assert min(later - earlier for earlier, later in pairwise(read)) >= 0.02, "twice within half of the time between two looks"
    assert len(read) < sum(map(len, received.values())) / 3
    stopping.set()
    assert len(streams) == 0
