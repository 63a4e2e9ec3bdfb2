"""The token cache: what is kept, for how long, and what many tokens at once do to it."""

import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import anyio
import pytest
from patience import patience
from sqlalchemy import Connection
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.caller import Credential
from campus.errors import StorageUnavailable
from campus.keys.keyring import KeyRing
from campus.keys.sales import Product
from campus.keys.token_cache import TokenCache
from campus.keys.tokens import new_token
from campus.storage import Storage
from campus.testing import Clock

pytestmark = pytest.mark.anyio
SECOND = timedelta(seconds=1)
UNKNOWN = Credential("unknown")


class CountedStorage:
    """Storage that counts how often it is read; with `on_full` set its disk is full, and that is called at each try."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.reads = 0
        self.on_full: Callable[[], object] | None = None
        self.gates: dict[int, anyio.Event] = {}
        self.at_gates = 0
        self.is_gone = False

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncSession]:
        self.reads += 1
        if self.is_gone:
            raise StorageUnavailable("the database is gone")
        gate = self.gates.get(self.reads)
        async with self.storage.read() as session:
            yield session
        if gate is not None:
            self.at_gates += 1
            await gate.wait()

    def write(self) -> AbstractAsyncContextManager[AsyncSession]:
        self.refuse_if_full()
        return self.storage.write()

    def batch(self, apply: Any) -> AbstractAsyncContextManager[Any]:
        def written(connection: Connection, items: Sequence[Any]) -> Sequence[Any]:
            self.refuse_if_full()
            return cast(Sequence[Any], apply(connection, items))

        return self.storage.batch(written)

    def refuse_if_full(self) -> None:
        if self.on_full is not None:
            self.on_full()
            raise StorageUnavailable("the disk is full")


@pytest.fixture
def counted(storage: Storage) -> CountedStorage:
    return CountedStorage(storage)


@pytest.fixture
def ring(counted: CountedStorage, products: Mapping[str, Product], clock: Clock) -> KeyRing:
    return KeyRing(counted, products, now=clock, monotonic=lambda: clock().timestamp())


async def test_text_that_cannot_be_a_token_is_not_looked_up(ring: KeyRing, counted: CountedStorage) -> None:
    for text in ("", "x", "campus_live_", "campus_live_" + "0" * 38, "é" * 50, "\ud800" * 50, "0" * 100_000):
        assert ring.tokens.peek(text) == UNKNOWN
        assert await ring.tokens.find(text) == UNKNOWN
    assert counted.reads == 0


async def test_a_key_is_cached_for_five_seconds(ring: KeyRing, counted: CountedStorage, clock: Clock) -> None:
    key, token = await ring.issue("cve")
    assert ring.tokens.peek(token) is None
    assert await ring.tokens.find(token) == ring.tokens.peek(token) == Credential("valid", key)
    clock.move(4.9 * SECOND)
    assert await ring.tokens.find(token) == Credential("valid", key)
    assert counted.reads == 1
    clock.move(0.2 * SECOND)
    assert ring.tokens.peek(token) is None
    await ring.tokens.find(token)
    assert counted.reads == 2


async def test_an_unknown_token_is_cached_too(ring: KeyRing, counted: CountedStorage) -> None:
    token = new_token(secrets.token_bytes)
    assert ring.tokens.peek(token) is None
    for _ in range(3):
        assert await ring.tokens.find(token) == UNKNOWN
    assert counted.reads == 1


@pytest.mark.both_databases
async def test_simultaneous_calls_share_one_read(ring: KeyRing, counted: CountedStorage) -> None:
    key, token = await ring.issue("cve")
    found: list[Credential] = []

    async def find() -> None:
        found.append(await ring.tokens.find(token))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(find)
    assert found == [Credential("valid", key)] * 20
    assert counted.reads == 1


async def test_the_five_seconds_count_from_the_start_of_the_read(
    ring: KeyRing, other_ring: KeyRing, counted: CountedStorage, clock: Clock
) -> None:
    key, token = await ring.issue("cve")
    counted.gates[1] = slow = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ring.tokens.find, token)
        while not counted.at_gates:  # noqa: ASYNC110  # a count of what others do
            await anyio.sleep(0.001)
        await other_ring.revoke(key.id)
        clock.move(3 * SECOND)
        slow.set()
    assert ring.tokens.peek(token) == Credential("valid", key), "as it was when the database was asked"
    clock.move(2 * SECOND)
    assert (await ring.tokens.find(token)).state == "revoked"


async def test_tokens_that_come_during_a_read_share_the_next_one(ring: KeyRing, counted: CountedStorage) -> None:
    tokens = [(await ring.issue("cve"))[1] for _ in range(12)]
    counted.gates |= {1: anyio.Event(), 2: anyio.Event()}
    found: list[Credential] = []

    async def find(token: str) -> None:
        found.append(await ring.tokens.find(token))

    async with anyio.create_task_group() as tasks:
        for number, token in enumerate(tokens[:2], start=1):
            tasks.start_soon(find, token)
            with anyio.fail_after(patience(60)):
                while counted.at_gates < number:  # noqa: ASYNC110  # a count of what others do
                    await anyio.sleep(0.001)
        for token in tokens[2:] * 2:
            tasks.start_soon(find, token)
        await anyio.wait_all_tasks_blocked()
        assert counted.reads == 2
        counted.gates[1].set()
        counted.gates[2].set()
    assert ([credential.state for credential in found], counted.reads) == (["valid"] * 22, 3)


async def test_all_callers_of_a_read_that_fails_are_told_at_once(ring: KeyRing, counted: CountedStorage) -> None:
    _, token = await ring.issue("cve")
    counted.is_gone = True
    failed: list[StorageUnavailable] = []

    async def find() -> None:
        with pytest.raises(StorageUnavailable) as caught:
            await ring.tokens.find(token)
        failed.append(caught.value)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(find)
    assert (len(failed), counted.reads) == (20, 1)


async def test_a_caller_who_hangs_up_fails_no_other_caller(ring: KeyRing) -> None:
    key, token = await ring.issue("cve")
    found: list[Credential] = []

    async def find() -> None:
        found.append(await ring.tokens.find(token))

    async with anyio.create_task_group() as tasks, anyio.create_task_group() as hung_up:
        hung_up.start_soon(ring.tokens.find, token)
        tasks.start_soon(find)
        tasks.start_soon(find)
        await anyio.lowlevel.checkpoint()
        hung_up.cancel_scope.cancel()
    assert found == [Credential("valid", key)] * 2


async def test_of_too_many_tokens_the_least_recently_used_is_dropped(ring: KeyRing, counted: CountedStorage, clock: Clock) -> None:
    lookup = TokenCache(counted, now=clock, monotonic=lambda: clock().timestamp(), size=2)
    tokens = [(await ring.issue("cve"))[1] for _ in range(3)]
    await lookup.find(tokens[0])
    await lookup.find(tokens[1])
    await lookup.find(tokens[0])
    await lookup.find(tokens[2])
    assert [lookup.peek(token) is None for token in tokens] == [False, True, False]


async def test_the_flush_stores_the_last_use(ring: KeyRing, clock: Clock) -> None:
    _, token = await ring.issue("cve")
    _, unused = await ring.issue("recorder")
    await ring.tokens.find(token)
    clock.move(SECOND)
    ring.tokens.peek(token)
    used_at = clock()
    assert [record.last_used_at for record in await ring.list()] == [None, None]
    clock.move(SECOND)
    await ring.tokens.flush_last_used()
    assert {record.prefix: record.last_used_at for record in await ring.list()} == {token[12:24]: used_at, unused[12:24]: None}


async def test_a_last_use_never_goes_back(ring: KeyRing, other_ring: KeyRing, clock: Clock) -> None:
    _, token = await ring.issue("cve")
    await ring.tokens.find(token)
    clock.move(SECOND)
    await other_ring.tokens.find(token)
    await other_ring.tokens.flush_last_used()
    await ring.tokens.flush_last_used()
    assert [record.last_used_at for record in await ring.list()] == [clock()]


async def test_an_invalid_key_counts_as_unused(ring: KeyRing, clock: Clock) -> None:
    key, token = await ring.issue("cve")
    clock.time = key.expires_at
    await ring.tokens.find(token)
    await ring.tokens.flush_last_used()
    assert [record.last_used_at for record in await ring.list()] == [None]


async def test_a_flush_that_fails_loses_no_time(ring: KeyRing, counted: CountedStorage, clock: Clock) -> None:
    _, one = await ring.issue("cve")
    clock.move(SECOND)
    _, other = await ring.issue("cve")
    await ring.tokens.find(one)
    await ring.tokens.find(other)
    first_use = clock()
    clock.move(SECOND)
    counted.on_full = lambda: ring.tokens.peek(one)
    with pytest.raises(StorageUnavailable):
        await ring.tokens.flush_last_used()
    counted.on_full = None
    await ring.tokens.flush_last_used()
    assert [record.last_used_at for record in await ring.list()] == [clock(), first_use]
