"""Finding a token's key: what is remembered, for how long, and what a flood of tokens can do."""

import secrets
from datetime import timedelta

import anyio
import pytest

from campus.caller import Credential
from campus.errors import StorageUnavailable
from campus.keys.keyring import KeyRing
from campus.keys.lookup import TokenLookup
from campus.keys.token import new_token

pytestmark = pytest.mark.anyio
SECOND = timedelta(seconds=1)
UNKNOWN = Credential("unknown")


@pytest.mark.parametrize("text", ["", "x", "campus_live_", "campus_live_" + "0" * 38, "é" * 50, "0" * 100_000, "\ud800" * 50])
async def test_text_that_cannot_be_a_token_is_unknown_without_a_look_at_the_database(ring, counted, text: str) -> None:
    assert ring.peek(text) == UNKNOWN
    assert await ring.find(text) == UNKNOWN
    assert counted.reads == 0


async def test_what_was_found_serves_for_five_seconds(ring, counted, clock) -> None:
    key, token = await ring.issue("cve")
    assert ring.peek(token) is None
    assert await ring.find(token) == ring.peek(token) == Credential("valid", key)
    clock.move(4.9 * SECOND)
    assert await ring.find(token) == Credential("valid", key)
    assert counted.reads == 1
    clock.move(0.1 * SECOND)
    assert ring.peek(token) is None
    await ring.find(token)
    assert counted.reads == 2


async def test_that_a_token_is_unknown_is_remembered_too(ring, counted) -> None:
    token = new_token(secrets.token_bytes)
    assert ring.peek(token) is None
    for _ in range(3):
        assert await ring.find(token) == UNKNOWN
    assert counted.reads == 1


async def test_calls_at_once_share_one_look_at_the_database(ring, counted) -> None:
    key, token = await ring.issue("cve")
    found: list[Credential] = []

    async def find() -> None:
        found.append(await ring.find(token))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(find)
    assert found == [Credential("valid", key)] * 20
    assert counted.reads == 1


async def test_a_caller_who_hangs_up_takes_nobody_with_him(ring) -> None:
    key, token = await ring.issue("cve")
    found: list[Credential] = []

    async def find() -> None:
        found.append(await ring.find(token))

    async with anyio.create_task_group() as tasks, anyio.create_task_group() as hung_up:
        hung_up.start_soon(ring.find, token)
        tasks.start_soon(find)
        tasks.start_soon(find)
        await anyio.lowlevel.checkpoint()
        hung_up.cancel_scope.cancel()
    assert found == [Credential("valid", key)] * 2


async def test_of_too_many_tokens_the_one_unused_for_longest_is_forgotten(ring, counted, clock) -> None:
    lookup = TokenLookup(counted, now=clock.now, monotonic=clock.monotonic, size=2)
    tokens = [(await ring.issue("cve"))[1] for _ in range(3)]
    await lookup.find(tokens[0])
    await lookup.find(tokens[1])
    await lookup.find(tokens[0])
    await lookup.find(tokens[2])
    assert [lookup.peek(token) is None for token in tokens] == [False, True, False]


async def test_the_last_use_is_written_by_the_flush(ring, clock) -> None:
    _, token = await ring.issue("cve")
    _, unused = await ring.issue("recorder")
    await ring.find(token)
    clock.move(SECOND)
    ring.peek(token)
    used_at = clock.now()
    assert [record.last_used_at for record in await ring.list()] == [None, None]
    clock.move(SECOND)
    await ring.flush_last_used()
    assert {record.prefix: record.last_used_at for record in await ring.list()} == {token[12:24]: used_at, unused[12:24]: None}


async def test_a_last_use_never_goes_back(ring, other_ring, clock) -> None:
    _, token = await ring.issue("cve")
    await ring.find(token)
    clock.move(SECOND)
    await other_ring.find(token)
    await other_ring.flush_last_used()
    await ring.flush_last_used()
    assert [record.last_used_at for record in await ring.list()] == [clock.now()]


async def test_a_key_that_opens_nothing_is_not_used(ring, clock) -> None:
    key, token = await ring.issue("cve")
    clock.set(key.expires_at)
    await ring.find(token)
    await ring.flush_last_used()
    assert [record.last_used_at for record in await ring.list()] == [None]


async def test_a_flush_that_fails_loses_no_time(ring, counted, clock) -> None:
    _, one = await ring.issue("cve")
    _, other = await ring.issue("cve")
    await ring.find(one)
    await ring.find(other)
    first_use = clock.now()
    counted.full = StorageUnavailable("the disk is full")
    with pytest.raises(StorageUnavailable):
        await ring.flush_last_used()
    counted.full = None
    clock.move(SECOND)
    await ring.find(one)
    await ring.flush_last_used()
    assert [record.last_used_at for record in await ring.list()] == [clock.now(), first_use]
