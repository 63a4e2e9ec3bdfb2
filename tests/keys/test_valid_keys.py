"""Valid keys in memory: which are found there, and how soon every process follows a change."""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup
from keys.test_token_cache import CountedStorage
from patience import patience

from campus.caller import Credential
from campus.errors import StorageError
from campus.keys.keyring import KeyRing
from campus.keys.sales import Product
from campus.keys.token_cache import CURRENT_SECONDS, ValidKeys
from campus.secrets import digest_of
from campus.storage import Storage
from campus.storage.databases import Databases
from campus.storage.tables import CoreTables
from campus.testing import Clock

pytestmark = pytest.mark.anyio
PACE = 0.005


@pytest.fixture
def counted(storage: Storage) -> CountedStorage:
    return CountedStorage(storage)


@pytest.fixture
def valid(counted: CountedStorage, clock: Clock) -> ValidKeys:
    return ValidKeys(counted, now=clock, monotonic=lambda: clock().timestamp(), pace=PACE)


@pytest.fixture
async def tasks() -> AsyncIterator[TaskGroup]:
    """Tasks that are cancelled at the end of the test."""
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(patience(60)):
        while not holds():  # noqa: ASYNC110  # what another task reads from a database
            await anyio.sleep(PACE)


async def test_every_valid_key_is_found_without_reading_the_database(
    counted: CountedStorage, products: Mapping[str, Product], clock: Clock, other_ring: KeyRing, tasks: TaskGroup
) -> None:
    ring = KeyRing(counted, products, now=clock, monotonic=lambda: clock().timestamp())
    issued = [await other_ring.issue(product) for product in ("cve", "recorder", "campus-pass") for _ in range(3)]
    replacing, token = await other_ring.rotate(issued[0][0].id)
    tasks.start_soon(ring.tokens.follow)
    await until(lambda: ring.tokens.peek(token) is not None)
    reads = counted.reads
    assert [ring.tokens.peek(one) for _, one in issued[1:]] == [Credential("valid", key) for key, _ in issued[1:]]
    assert ring.tokens.peek(token) == Credential("valid", replacing), "with the lineage of the key that it replaces"
    assert counted.reads == reads


async def test_what_another_process_issues_renews_or_revokes_is_followed(valid: ValidKeys, other_ring: KeyRing, tasks: TaskGroup) -> None:
    key, token = await other_ring.issue("cve")
    tasks.start_soon(valid.follow)
    await until(lambda: valid.find(digest_of(token)) == Credential("valid", key))
    renewed = await other_ring.renew(key.id)
    await until(lambda: valid.find(digest_of(token)) == Credential("valid", renewed))
    later, other = await other_ring.issue("recorder")
    await until(lambda: valid.find(digest_of(other)) == Credential("valid", later))
    await other_ring.revoke(key.id)
    await until(lambda: valid.find(digest_of(token)) is None)
    assert valid.find(digest_of(other)) == Credential("valid", later)


async def test_nothing_is_taken_for_valid_five_seconds_after_the_last_reading(
    valid: ValidKeys, ring: KeyRing, clock: Clock, counted: CountedStorage, tasks: TaskGroup
) -> None:
    _, token = await ring.issue("cve")
    tasks.start_soon(valid.follow)
    await until(lambda: valid.find(digest_of(token)) is not None)
    counted.gates[counted.reads + 1] = anyio.Event()  # the next reading does not end
    await until(lambda: counted.at_gates == 1)
    clock.move(timedelta(seconds=CURRENT_SECONDS))
    assert valid.find(digest_of(token)) is None


async def test_a_change_here_counts_at_once_even_while_the_log_is_read(
    valid: ValidKeys, ring: KeyRing, counted: CountedStorage, tasks: TaskGroup
) -> None:
    key, token = await ring.issue("cve")
    tasks.start_soon(valid.follow)
    await until(lambda: valid.find(digest_of(token)) == Credential("valid", key))
    counted.gates[counted.reads + 1] = slow = anyio.Event()
    await until(lambda: counted.at_gates == 1)
    renewed = await ring.renew(key.id)
    valid.forget(digest_of(token))
    assert valid.find(digest_of(token)) is None
    slow.set()
    await until(lambda: valid.find(digest_of(token)) == Credential("valid", renewed))


async def test_a_database_that_was_replaced_is_noticed(valid: ValidKeys, ring: KeyRing, counted: CountedStorage, tmp_path: Path) -> None:
    await ring.issue("cve")
    async with Databases.open(f"sqlite:{tmp_path / 'other'}") as databases, anyio.create_task_group() as tasks:
        another = await databases.storage_of("campus", CoreTables)

        async def replace() -> None:
            await until(lambda: counted.reads > 3)
            counted.storage = another

        tasks.start_soon(replace)
        with pytest.raises(StorageError, match="all keys are read again"):
            await valid.follow()
