"""Many connections: each address has its share, and an idle one makes room for one that has something to ask."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from math import inf
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import patience
from starlette.types import Receive, Scope, Send

from campus.http.protocol import ConnectionLimits, LimitedProtocol, with_limits
from campus.http.server import KEEP_ALIVE_SECONDS
from tests.http.conftest import Connection, Served

pytestmark = pytest.mark.anyio

GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
NO_PROXIES: tuple[str, ...] = ()
TIGHT = with_limits(connections_limit=6, connections_per_address=3, linger_seconds=0.2, head_seconds=60)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@dataclass
class Crowd:
    """Connections that stay open until the test ends."""

    served: Served
    stack: AsyncExitStack

    async def joined(self, address: str = "127.0.0.1", *, asks: bool = True) -> Connection:
        connection = await self.stack.enter_async_context(self.served.connected(address))
        if asks:
            assert await self.is_served(connection)
        return connection

    @staticmethod
    async def is_closed(connection: Connection) -> bool:
        with anyio.fail_after(KEEP_ALIVE_SECONDS / 2):
            return await connection.rest() == b""

    @staticmethod
    async def is_served(connection: Connection) -> bool:
        await connection.send(GET % b"again")
        status = (await connection.answer()).status
        await anyio.sleep(0.003)  # the loop's clock counts milliseconds, and tells who is idle for longer
        return status == 200


async def test_the_longest_idle_connection_of_an_address_makes_room_for_its_next(serving) -> None:
    async with serving(hello, protocol=TIGHT, trusted_proxies=NO_PROXIES) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        first, second, third = [await crowd.joined() for _ in range(3)]
        assert await crowd.is_served(first), "now the second is idle for the longest time"
        fourth = await crowd.joined()
        assert await crowd.is_closed(second)
        for connection in (first, third, fourth):
            assert await crowd.is_served(connection)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"], ids=["nothing", "half a head"])
async def test_connections_that_ask_nothing_shut_nobody_out(serving, sent: bytes) -> None:
    async with serving(hello, protocol=TIGHT, trusted_proxies=NO_PROXIES) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        for _ in range(40):
            silent = await crowd.joined("127.0.0.2", asks=False)
            await silent.send(sent) if sent else None
        assert await crowd.is_served(await crowd.joined("127.0.0.3"))
        assert await crowd.is_served(await crowd.joined("127.0.0.2"))


async def test_where_the_whole_is_full_the_address_with_the_most_gives_way(serving) -> None:
    async with serving(hello, protocol=TIGHT, trusted_proxies=NO_PROXIES) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        alone = await crowd.joined("127.0.0.5")
        two = [await crowd.joined("127.0.0.4") for _ in range(2)]
        three = [await crowd.joined("127.0.0.3") for _ in range(3)]
        newcomer = await crowd.joined("127.0.0.6")
        assert await crowd.is_closed(three[0]), "though the others are idle for longer"
        for connection in (alone, *two, *three[1:], newcomer):
            assert await crowd.is_served(connection)


async def test_a_connection_that_is_answered_is_never_closed_for_another(serving) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            begun.release()
            await release.wait()
        await hello(scope, receive, send)

    begun, release = anyio.Semaphore(0), anyio.Event()
    async with serving(slow, protocol=TIGHT, trusted_proxies=NO_PROXIES) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        busy = [await crowd.joined(asks=False) for _ in range(3)]
        with anyio.fail_after(patience(20)):
            for connection in busy:
                await connection.send(GET % b"slow")
                await begun.acquire()
        refused = await (await crowd.joined(asks=False)).answer()
        assert (refused.status, refused.json()["code"], refused.headers["retry-after"]) == (503, "overloaded", "5")
        assert await crowd.is_served(await crowd.joined("127.0.0.2"))
        release.set()
        for connection in busy:
            assert (await connection.answer()).body == b"hello"


async def test_connections_of_a_trusted_proxy_are_not_counted_as_one_callers(serving) -> None:
    async with serving(hello, protocol=TIGHT, trusted_proxies=("127.0.0.0/29",)) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        behind_proxies = [await crowd.joined() for _ in range(5)]
        stranger = await crowd.joined("127.0.0.9")
        assert await crowd.is_served(await crowd.joined("127.0.0.10"))
        assert await crowd.is_closed(stranger), "the only one that is no proxy's"
        for connection in behind_proxies:
            assert await crowd.is_served(connection)


async def test_idle_connections_of_a_trusted_proxy_shut_nobody_out(serving) -> None:
    async with serving(hello, protocol=TIGHT) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        behind_proxy = [await crowd.joined() for _ in range(6)]
        assert await crowd.is_served(behind_proxy[0])
        assert await crowd.is_served(await crowd.joined("127.0.0.9"))
        assert await crowd.is_closed(behind_proxy[1]), "idle for the longest time"
        assert await crowd.is_served(await crowd.joined()), "the stranger's place"
        for connection in (behind_proxy[0], *behind_proxy[2:]):
            assert await crowd.is_served(connection)


async def test_of_many_refused_connections_few_are_kept_until_they_have_read_why(serving) -> None:
    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await anyio.sleep_forever()

    begun = anyio.Event()
    protocol = with_limits(connections_limit=1, linger_seconds=patience(20))
    async with serving(stuck, protocol=protocol) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        await (await crowd.joined(asks=False)).send(GET % b"")
        with anyio.fail_after(patience(20)):
            await begun.wait()
        answers = Counter()
        for _ in range(80):
            connection = await crowd.joined(asks=False)
            with anyio.fail_after(patience(20)):
                try:
                    answers[(await connection.stream.receive())[:12]] += 1
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    answers["closed"] += 1
        assert answers == {b"HTTP/1.1 503": 64, "closed": 16}


UNREAD = b"\0" * 2**24
"""More than the two ends of a connection hold unread."""


class Unread:
    """An app whose responses are larger than what a connection holds unread, in two parts; it notes the calls that ended."""

    def __init__(self) -> None:
        self.written, self.ended, self.late = anyio.Semaphore(0), list[str](), anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = len(UNREAD) + (scope["path"] != "/once")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % length)]})
        await send({"type": "http.response.body", "body": UNREAD, "more_body": scope["path"] != "/once"})
        self.written.release()
        if scope["path"] != "/once":
            await send({"type": "http.response.body", "body": b"\0"})
        self.ended.append(scope["path"])
        if scope["path"] == "/late":
            self.late.set()


def counted(**limits: Any) -> tuple[type[LimitedProtocol], set[LimitedProtocol]]:
    is_open: set[LimitedProtocol] = set()

    class Counted(with_limits(**limits)):  # type: ignore[misc]  # made anew
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            is_open.add(self)

        def connection_lost(self, exc: Exception | None) -> None:
            is_open.remove(self)
            super().connection_lost(exc)

    return Counted, is_open


@pytest.mark.parametrize("more", [b"", b"GARBAGE\r\n\r\n"], ids=["nothing", "what is not HTTP"])
async def test_callers_that_do_not_read_have_no_more_connections_than_others(serving, more: bytes) -> None:
    unread = Unread()
    protocol, is_open = counted(connections_per_address=3, linger_seconds=0.01)
    async with serving(unread, protocol=protocol, trusted_proxies=NO_PROXIES) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        for _ in range(8):
            connection = await crowd.joined("127.0.0.2", asks=False)
            await connection.send(GET % b"once")
            with anyio.fail_after(patience(20)):
                await unread.written.acquire()
            await connection.send(more) if more else None
            await anyio.sleep(0.05)
        assert len(is_open) <= 3


async def test_calls_whose_callers_do_not_read_leave_room_for_others(serving) -> None:
    unread = Unread()
    async with serving(unread, protocol=with_limits(unread_limit=2), calls=3) as served, AsyncExitStack() as stack:
        crowd = Crowd(served, stack)
        for number in b"123456":
            await (await crowd.joined(asks=False)).send(GET % b"%c" % number)
            with anyio.fail_after(patience(20)):
                await unread.written.acquire()
        await anyio.wait_all_tasks_blocked()
        assert unread.ended == ["/1", "/2", "/3", "/4"], "those that have waited longest"
    async with serving(unread, protocol=with_limits(unread_seconds=0.05)) as served, served.connected() as connection:
        await connection.send(GET % b"late")
        with anyio.fail_after(patience(20)):
            await unread.late.wait()
        assert len(await connection.rest()) < len(UNREAD), "what was not read in time is dropped"


@dataclass(eq=False)
class PlainConnection:
    """A connection without a socket."""

    client: tuple[str, int] | None
    idle_since: float
    closed: list[bool] = field(default_factory=list)

    def close_idle(self) -> None:
        self.closed.append(True)


def test_an_ipv6_subscriber_is_one_address_and_a_mapped_ipv4_address_is_ipv4() -> None:
    limits = ConnectionLimits(limit=100, per_address=2)
    one, two, three = [PlainConnection((f"2001:db8:0:7::{number}", 1), number) for number in (1, 2, 3)]
    elsewhere, plain, mapped, third = [
        PlainConnection((a, 1), 9) for a in ("2001:db8:0:8::1", "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1")
    ]
    assert all(limits.admit(each) for each in (one, two, elsewhere, plain, mapped))
    assert not any(each.closed for each in (one, two, elsewhere, plain, mapped))
    assert limits.admit(three)
    assert (one.closed, two.closed) == ([True], [])
    plain.idle_since = inf
    assert limits.admit(third)
    assert (plain.closed, mapped.closed) == ([], [True])


PROXY = "192.0.2.9"
ADDRESSES = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "::1", "", PROXY])
MOVES = st.lists(st.tuples(ADDRESSES, st.floats(0, 9) | st.just(inf), st.booleans()), max_size=60)


@given(MOVES)
def test_no_limit_is_exceeded_and_only_idle_connections_are_closed_those_of_proxies_last(moves: list[tuple[str, float, bool]]) -> None:
    limits, inside = ConnectionLimits(limit=7, per_address=3, proxies={PROXY}), []
    for address, idle_since, leaves in moves:
        newcomer = PlainConnection((address, 1) if address else None, idle_since)
        idle = [each for each in inside if each.idle_since < inf]
        strangers = [each for each in idle if each.client != (PROXY, 1)]
        entered = limits.admit(newcomer)
        gone = [each for each in inside if each.closed]
        assert all(each in (strangers or idle) for each in gone)
        inside = [each for each in inside if not each.closed] + ([newcomer] if entered else [])
        if leaves and inside:
            limits.remove(inside.pop(0))
        sizes = Counter(each.client for each in inside)
        assert len(limits) == len(inside) <= 7
        assert all(count <= 3 for client, count in sizes.items() if client != (PROXY, 1))
