"""Every change of a key, and why it is refused."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain

import anyio
import pytest
from sqlmodel import col, select

from campus.caller import Credential
from campus.errors import KeyRefused
from campus.keys.keyring import KeyRing
from campus.keys.sales import Product
from campus.keys.tables import KeyEvent, KeyRow
from campus.storage import Storage
from campus.testing import Clock

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)


async def events_of(storage: Storage) -> list[tuple[str, str, str]]:
    async with storage.read() as session:
        events = (await session.exec(select(KeyEvent).order_by(col(KeyEvent.id)))).all()
        return [(event.key_id, event.action, event.by) for event in events]


async def test_an_issued_key_has_the_products_scope_and_term(ring: KeyRing, clock: Clock) -> None:
    key, token = await ring.issue("campus-pass-year")
    assert (key.product, key.scope, key.lineage) == ("campus-pass-year", "all", key.id)
    assert key.issued_at == clock()
    assert key.expires_at == datetime(2027, 8, 21, 12, 0, 0, 123_456, tzinfo=UTC)
    assert await ring.tokens.find(token) == Credential("valid", key)


async def test_an_issued_key_is_known_to_another_process_at_once(ring: KeyRing, other_ring: KeyRing) -> None:
    key, token = await ring.issue("cve")
    assert await other_ring.tokens.find(token) == Credential("valid", key)
    assert await other_ring.get(key.id) == key
    assert await other_ring.get("key_unknown") is None


async def test_the_token_is_nowhere_in_the_database(ring: KeyRing, storage: Storage) -> None:
    _, token = await ring.issue("cve", note="for a test")
    async with storage.read() as session:
        stored = repr([row.model_dump() for table in (KeyRow, KeyEvent) for row in (await session.exec(select(table))).all()])
    secret = token.removeprefix("campus_live_")
    assert secret[:12] in stored
    assert secret[:13] not in stored
    assert secret[12:] not in stored


async def test_an_unknown_product_is_refused_with_the_known_ones(ring: KeyRing, storage: Storage) -> None:
    with pytest.raises(KeyRefused, match="no product 'zoo' is for sale; the products are: campus-pass, campus-pass-year, cve, recorder"):
        await ring.issue("zoo")
    assert await events_of(storage) == []


async def test_without_products_the_refusal_names_the_table_to_add(storage: Storage, clock: Clock) -> None:
    with pytest.raises(KeyRefused, match=r"campus.toml has no table \[products.NAME\]"):
        await KeyRing(storage, {}, now=clock).issue("cve")


async def test_a_key_is_valid_before_its_end_and_not_at_it(ring: KeyRing, clock: Clock) -> None:
    key, token = await ring.issue("cve")
    clock.time = key.expires_at - INSTANT
    assert await ring.tokens.find(token) == Credential("valid", key)
    clock.time = key.expires_at
    assert ring.tokens.peek(token) == Credential("expired", key), "judged by the clock, though it is remembered as it was"
    assert await ring.tokens.find(token) == Credential("expired", key)


async def test_a_rotated_key_is_valid_for_one_more_day(ring: KeyRing, clock: Clock) -> None:
    old, old_token = await ring.issue("cve", note="the scanner's")
    clock.move(DAY)
    new, new_token = await ring.rotate(old.id)
    assert new.id != old.id
    assert new_token != old_token
    assert (new.product, new.scope, new.lineage, new.expires_at) == (old.product, old.scope, old.lineage, old.expires_at)
    assert new.issued_at == clock()
    assert await ring.tokens.find(new_token) == Credential("valid", new)
    clock.move(DAY - INSTANT)
    assert (await ring.tokens.find(old_token)).state == "valid"
    clock.move(INSTANT)
    assert (await ring.tokens.find(old_token)).state == "expired"
    assert await ring.tokens.find(new_token) == Credential("valid", new)


async def test_a_rotation_does_not_extend_a_key(ring: KeyRing, clock: Clock) -> None:
    old, old_token = await ring.issue("cve")
    clock.time = old.expires_at - timedelta(hours=1)
    new, new_token = await ring.rotate(old.id)
    clock.time = old.expires_at
    assert (await ring.tokens.find(old_token)).state == (await ring.tokens.find(new_token)).state == "expired"
    assert new.expires_at == old.expires_at


async def test_the_lineage_stays_through_many_rotations(ring: KeyRing) -> None:
    first, _ = await ring.issue("cve")
    key = first
    for _ in range(3):
        key, _ = await ring.rotate(key.id)
    assert key.lineage == first.lineage == first.id


async def test_a_key_that_was_rotated_is_not_rotated_or_renewed_again(ring: KeyRing) -> None:
    old, _ = await ring.issue("cve")
    new, _ = await ring.rotate(old.id)
    for change in (ring.rotate, ring.renew):
        with pytest.raises(KeyRefused, match=f"key {old.id} was rotated before; use {new.id}, which replaced it"):
            await change(old.id)


async def test_a_key_that_ended_is_not_rotated(ring: KeyRing, clock: Clock) -> None:
    key, _ = await ring.issue("cve")
    clock.time = key.expires_at
    with pytest.raises(KeyRefused, match=f"key {key.id} ended on 2026-09-20T12:00:00Z and cannot be rotated; renew it"):
        await ring.rotate(key.id)


async def test_a_renewal_of_a_valid_key_begins_at_its_end(ring: KeyRing, clock: Clock) -> None:
    key, token = await ring.issue("cve")
    clock.move(DAY)
    await ring.tokens.find(token)
    renewed = await ring.renew(key.id)
    assert renewed.expires_at == key.expires_at + 30 * DAY
    assert (renewed.id, renewed.lineage, renewed.issued_at) == (key.id, key.lineage, key.issued_at)
    assert await ring.tokens.find(token) == Credential("valid", renewed)


async def test_a_renewal_of_an_expired_key_begins_now(ring: KeyRing, clock: Clock) -> None:
    key, token = await ring.issue("cve")
    clock.time = key.expires_at + 100 * DAY
    assert (await ring.tokens.find(token)).state == "expired"
    renewed = await ring.renew(key.id)
    assert renewed.expires_at == clock() + 30 * DAY
    assert await ring.tokens.find(token) == Credential("valid", renewed)


async def test_a_key_whose_product_is_sold_no_more_is_not_renewed(ring: KeyRing, storage: Storage, clock: Clock) -> None:
    key, _ = await ring.issue("campus-pass")
    later = KeyRing(storage, {}, now=clock)
    with pytest.raises(KeyRefused, match="no product 'campus-pass' is for sale"):
        await later.renew(key.id)


async def test_a_revocation_holds_at_once_here_and_in_five_seconds_elsewhere(ring: KeyRing, other_ring: KeyRing, clock: Clock) -> None:
    key, token = await ring.issue("cve")
    await ring.tokens.find(token)
    await other_ring.tokens.find(token)
    await ring.revoke(key.id)
    assert await ring.tokens.find(token) == Credential("revoked", key)
    clock.move(timedelta(seconds=4.9))
    assert (await other_ring.tokens.find(token)).state == "valid"
    clock.move(timedelta(seconds=0.2))
    assert await other_ring.tokens.find(token) == Credential("revoked", key)


async def test_a_revoked_key_cannot_be_changed(ring: KeyRing, storage: Storage, clock: Clock) -> None:
    key, _ = await ring.issue("cve")
    await ring.revoke(key.id)
    for change in (ring.rotate, ring.renew):
        with pytest.raises(
            KeyRefused, match=f"key {key.id} was revoked on 2026-08-21T12:00:00Z and cannot be changed; a new key is needed"
        ):
            await change(key.id)
    clock.move(DAY)
    assert await ring.revoke(key.id) == key
    assert [action for _, action, _ in await events_of(storage)] == ["issued", "revoked"]
    assert [record.revoked_at for record in await ring.list()] == [clock() - DAY]


async def test_a_key_is_named_by_its_id_or_by_how_its_token_begins(ring: KeyRing) -> None:
    for length in (16, 20, 24, 50):
        key, token = await ring.issue("cve")
        assert (await ring.revoke(token[:length])).id == key.id
        key, token = await ring.issue("cve")
        assert (await ring.revoke(token[12:length])).id == key.id
    key, token = await ring.issue("cve")
    mistyped = token[:-1] + ("a" if token[-1] != "a" else "b")
    for name in (
        "",
        "campus_live_",
        mistyped,
        mistyped[12:],
        token + "é",
        token[:15],
        token[12:15],
        token[12:24].swapcase(),
        key.id[:-1],
        "key_",
        "%%%%",
        "____",
    ):
        with pytest.raises(KeyRefused, match="use an id or 4 characters of a token: `campus key list` shows both"):
            await ring.revoke(name)


async def test_neither_the_log_nor_a_refusal_shows_a_token(ring: KeyRing, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="campus")
    key, old_token = await ring.issue("cve")
    _, new_token = await ring.rotate(old_token)
    await ring.renew(new_token)
    await ring.revoke(new_token)
    assert [record.message for record in caplog.records] == ["key issued", "key rotated", "key renewed", "key revoked"]
    logged = repr([vars(record) for record in caplog.records])
    assert key.id in logged
    assert old_token[12:24] not in logged
    assert new_token[12:24] not in logged
    with pytest.raises(KeyRefused) as refused:
        await ring.revoke(new_token.swapcase())
    assert new_token.swapcase()[16:] not in str(refused.value)


async def test_an_ambiguous_beginning_is_refused_with_the_ids(storage: Storage, products: Mapping[str, Product], clock: Clock) -> None:
    drawn = iter(range(1, 100))
    ring = KeyRing(storage, products, now=clock, entropy=lambda size: next(drawn).to_bytes(size))
    one, token = await ring.issue("cve")
    other, _ = await ring.issue("cve")
    with pytest.raises(KeyRefused, match=f": {one.id}, {other.id}; use the id of one of them"):
        await ring.revoke(token[:24])
    assert {record.state for record in await ring.list()} == {"valid"}
    assert (await ring.revoke(one.id)).id == one.id


async def test_the_list_shows_the_state_of_each_key(ring: KeyRing, clock: Clock) -> None:
    expired, _ = await ring.issue("cve")
    clock.move(30 * DAY)
    revoked, _ = await ring.issue("recorder", note="lost")
    await ring.revoke(revoked.id)
    clock.move(DAY)
    old, old_token = await ring.issue("campus-pass", note="in CI")
    clock.move(DAY)
    new, _ = await ring.rotate(old.id)
    records = await ring.list()
    assert [(record.key.id, record.state) for record in records] == [
        (expired.id, "expired"),
        (revoked.id, "revoked"),
        (old.id, "valid"),
        (new.id, "valid"),
    ]
    assert [record.note for record in records] == ["", "lost", "in CI", "in CI"]
    assert [record.replaced_by for record in records] == [None, None, new.id, None]
    assert records[2].prefix == old_token[12:24]


async def test_every_change_is_in_the_log_with_who_made_it(ring: KeyRing, storage: Storage) -> None:
    old, _ = await ring.issue("cve", by="checkout")
    new, _ = await ring.rotate(old.id)
    await ring.renew(new.id, by="checkout")
    await ring.revoke(old.id, by="mallory")
    assert await events_of(storage) == [
        (old.id, "issued", "checkout"),
        (new.id, "issued", "operator"),
        (old.id, "rotated", "operator"),
        (new.id, "renewed", "checkout"),
        (old.id, "revoked", "mallory"),
    ]


@pytest.mark.both_databases
async def test_one_of_simultaneous_rotations_succeeds(ring: KeyRing, other_ring: KeyRing, storage: Storage) -> None:
    key, _ = await ring.issue("cve")
    heirs: list[str] = []
    refusals: list[str] = []

    async def rotate(keys: KeyRing) -> None:
        try:
            heirs.append((await keys.rotate(key.id))[0].id)
        except KeyRefused as refused:
            refusals.append(str(refused))

    async with anyio.create_task_group() as tasks:
        for keys in (ring, other_ring) * 4:
            tasks.start_soon(rotate, keys)
    assert len(heirs) == 1
    assert refusals == [f"key {key.id} was rotated before; use {heirs[0]}, which replaced it"] * 7
    assert [action for _, action, _ in await events_of(storage)] == ["issued", "issued", "rotated"]


async def test_all_simultaneous_renewals_count(ring: KeyRing, other_ring: KeyRing) -> None:
    key, _ = await ring.issue("cve")
    async with anyio.create_task_group() as tasks:
        for keys in (ring, other_ring) * 4:
            tasks.start_soon(keys.renew, key.id)
    renewed = await ring.get(key.id)
    assert renewed is not None
    assert renewed.expires_at == key.expires_at + 8 * 30 * DAY


async def test_one_of_simultaneous_revocations_is_logged(ring: KeyRing, other_ring: KeyRing, storage: Storage) -> None:
    key, _ = await ring.issue("cve")
    async with anyio.create_task_group() as tasks:
        for keys in (ring, other_ring) * 4:
            tasks.start_soon(keys.revoke, key.id)
    assert [action for _, action, _ in await events_of(storage)] == ["issued", "revoked"]


async def test_a_lineage_ends_with_the_last_of_its_keys_that_was_not_revoked(ring: KeyRing, clock: Clock) -> None:
    first, _ = await ring.issue("cve")
    assert (await ring.ends_of([first.lineage])).get(first.lineage) == first.expires_at
    second, _ = await ring.rotate(first.id)
    assert (await ring.ends_of([first.lineage])).get(first.lineage) == second.expires_at
    renewed = await ring.renew(second.id)
    assert (await ring.ends_of([first.lineage])).get(first.lineage) == renewed.expires_at
    await ring.revoke(second.id)
    assert (await ring.ends_of([first.lineage])).get(first.lineage) == clock() + DAY
    await ring.revoke(first.id)
    assert (await ring.ends_of([first.lineage])).get(first.lineage) is None
    assert (await ring.ends_of(["nobody"])).get("nobody") is None


@pytest.mark.both_databases
async def test_pages_of_the_list_hold_every_key_once(ring: KeyRing, clock: Clock) -> None:
    for number in range(7):
        clock.move(timedelta(seconds=number % 2))  # some are issued at the same time
        await ring.issue("cve")
    pages = [await ring.list(limit=3)]
    while page := await ring.list(after=pages[-1][-1], limit=3):
        pages.append(page)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert tuple(chain.from_iterable(pages)) == await ring.list()
