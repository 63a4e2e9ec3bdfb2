"""Keys that a payment buys: their state before the payment settles, after it, and when it is released."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from sqlmodel import col, select

from campus.caller import Credential
from campus.errors import KeyRefused
from campus.keys.credits import withdraw
from campus.keys.keyring import BuildingKeys, KeyRing
from campus.keys.sales import Product, Term
from campus.keys.tables import CreditAccount, KeyEvent, KeyRow, KeySale
from campus.storage import Storage
from campus.testing import Clock

pytestmark = pytest.mark.anyio
DAY = timedelta(days=1)


@pytest.fixture
def keys(ring: KeyRing) -> BuildingKeys:
    return BuildingKeys(ring, building="checkout", may_sell=True)


async def settle(storage: Storage, ring: KeyRing, payment: str) -> None:
    async with storage.write() as session:
        await ring.sales.deliver(session, payment)


async def release(storage: Storage, ring: KeyRing, payment: str) -> None:
    async with storage.write() as session:
        await ring.sales.drop(session, payment)


async def sales_of(storage: Storage) -> list[KeySale]:
    async with storage.read() as session:
        return list((await session.exec(select(KeySale).order_by(col(KeySale.payment)))).all())


async def events_of(storage: Storage) -> list[tuple[str, str, str]]:
    async with storage.read() as session:
        events = (await session.exec(select(KeyEvent).order_by(col(KeyEvent.id)))).all()
        return [(event.key_id, event.action, event.by) for event in events]


async def test_a_key_is_unknown_until_its_payment_settles(keys: BuildingKeys, ring: KeyRing, other_ring: KeyRing, storage: Storage) -> None:
    sold = await keys.sell("campus-pass-year", payment="pay_1")
    assert sold.token is not None
    assert await ring.tokens.find(sold.token) == await other_ring.tokens.find(sold.token) == Credential("unknown")
    assert await ring.get(sold.key.id) is None
    assert await ring.list() == ()
    await settle(storage, ring, "pay_1")
    assert await ring.tokens.find(sold.token) == Credential("valid", sold.key)
    assert await keys.get(sold.key.id) == sold.key
    assert await events_of(storage) == [(sold.key.id, "issued", "checkout")]


async def test_the_term_counts_from_the_call_and_not_from_the_settlement(
    keys: BuildingKeys, ring: KeyRing, storage: Storage, clock: Clock
) -> None:
    sold = await keys.sell("campus-pass-year", payment="pay_1")
    assert (sold.key.product, sold.key.scope, sold.key.lineage, sold.key.issued_at) == ("campus-pass-year", "all", sold.key.id, clock())
    assert sold.key.expires_at == datetime(2027, 8, 21, 12, 0, 0, 123_456, tzinfo=UTC)
    clock.move(DAY)
    await settle(storage, ring, "pay_1")
    assert await ring.get(sold.key.id) == sold.key


async def test_a_key_is_delivered_as_it_was_sold_though_the_product_is_gone(keys: BuildingKeys, storage: Storage, clock: Clock) -> None:
    sold = await keys.sell("cve", payment="pay_1")
    after_a_restart = KeyRing(storage, {}, now=clock)
    await settle(storage, after_a_restart, "pay_1")
    assert sold.token is not None
    assert await after_a_restart.tokens.find(sold.token) == Credential("valid", sold.key)


async def test_a_settlement_that_is_reported_twice_delivers_once(keys: BuildingKeys, ring: KeyRing, storage: Storage, clock: Clock) -> None:
    key, _ = await ring.issue("cve")
    await keys.sell("cve", payment="pay_1", renew=key.id)
    await settle(storage, ring, "pay_1")
    clock.move(DAY)
    await settle(storage, ring, "pay_1")
    renewed = await ring.get(key.id)
    assert renewed is not None
    assert renewed.expires_at == key.expires_at + 30 * DAY
    assert [action for _, action, _ in await events_of(storage)] == ["issued", "renewed"]


async def test_a_payment_that_bought_no_key_changes_none(ring: KeyRing, storage: Storage) -> None:
    await settle(storage, ring, "pay_for_an_answer")
    await release(storage, ring, "pay_for_another")
    assert await events_of(storage) == []


async def test_a_sale_whose_payment_is_released_never_opens_anything(keys: BuildingKeys, ring: KeyRing, storage: Storage) -> None:
    sold = await keys.sell("cve", payment="pay_1")
    await release(storage, ring, "pay_1")
    await settle(storage, ring, "pay_1")
    assert sold.token is not None
    assert await ring.tokens.find(sold.token) == Credential("unknown")
    assert await sales_of(storage) == []


async def test_a_release_changes_no_key_that_was_paid_for(keys: BuildingKeys, ring: KeyRing, storage: Storage) -> None:
    sold = await keys.sell("cve", payment="pay_1")
    await settle(storage, ring, "pay_1")
    await release(storage, ring, "pay_1")
    assert sold.token is not None
    assert (await ring.tokens.find(sold.token)).state == "valid"
    assert [sale.key_id for sale in await sales_of(storage)] == [sold.key.id]


async def test_a_repeated_call_sells_its_last_key_only(keys: BuildingKeys, ring: KeyRing, storage: Storage) -> None:
    first = await keys.sell("cve", payment="pay_1")
    second = await keys.sell("cve", payment="pay_1")
    await settle(storage, ring, "pay_1")
    assert first.token is not None
    assert second.token is not None
    assert (await ring.tokens.find(first.token)).state == "unknown"
    assert await ring.tokens.find(second.token) == Credential("valid", second.key)
    with pytest.raises(KeyRefused, match=f"payment pay_1 bought key {second.key.id} before"):
        await keys.sell("cve", payment="pay_1")


@pytest.mark.both_databases
async def test_a_settlement_that_is_rolled_back_delivers_nothing(keys: BuildingKeys, ring: KeyRing, storage: Storage) -> None:
    sold = await keys.sell("cve", payment="pay_1")

    async def settle_and_fail() -> None:
        async with storage.write() as session:
            await ring.sales.deliver(session, "pay_1")
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await settle_and_fail()
    assert sold.token is not None
    assert (await ring.tokens.find(sold.token)).state == "unknown"
    await settle(storage, ring, "pay_1")
    assert await ring.get(sold.key.id) == sold.key


async def test_a_renewal_extends_the_key_when_it_is_paid_and_not_before(
    keys: BuildingKeys, ring: KeyRing, storage: Storage, clock: Clock
) -> None:
    key, token = await ring.issue("campus-pass-year")
    clock.move(DAY)
    sold = await keys.sell("campus-pass-year", payment="pay_1", renew=key.id)
    assert sold.token is None
    assert (sold.key.id, sold.key.lineage, sold.key.issued_at) == (key.id, key.lineage, key.issued_at)
    assert sold.key.expires_at == datetime(2028, 8, 21, 12, 0, 0, 123_456, tzinfo=UTC)
    assert await ring.tokens.find(token) == Credential("valid", key)
    await settle(storage, ring, "pay_1")
    assert await ring.tokens.find(token) == Credential("valid", sold.key)


async def test_an_expired_key_is_valid_as_soon_as_its_renewal_is_paid(
    keys: BuildingKeys, ring: KeyRing, storage: Storage, clock: Clock
) -> None:
    key, token = await ring.issue("cve")
    clock.time = key.expires_at + 100 * DAY
    sold = await keys.sell("cve", payment="pay_1", renew=key.id)
    assert sold.key.expires_at == clock() + 30 * DAY
    async with storage.write() as session:
        await ring.sales.deliver(session, "pay_1")
        assert (await ring.tokens.find(token)).state == "expired", "the transaction has not ended, and this look is remembered"
    assert await ring.tokens.find(token) == Credential("valid", sold.key)


@pytest.mark.both_databases
async def test_all_simultaneous_renewals_count(keys: BuildingKeys, ring: KeyRing, other_ring: KeyRing, storage: Storage) -> None:
    key, _ = await ring.issue("cve")
    payments = [f"pay_{number}" for number in range(6)]
    for payment in payments:
        await keys.sell("cve", payment=payment, renew=key.id)
    async with anyio.create_task_group() as tasks:
        for number, payment in enumerate(payments):
            tasks.start_soon(settle, storage, (ring, other_ring)[number % 2], payment)
    renewed = await ring.get(key.id)
    assert renewed is not None
    assert renewed.expires_at == key.expires_at + 6 * 30 * DAY


async def take_back(storage: Storage, ring: KeyRing, payment: str) -> None:
    async with storage.write() as session:
        await ring.sales.take_back(session, payment)


async def test_a_key_whose_payment_was_reversed_is_revoked_with_its_successors(keys: BuildingKeys, ring: KeyRing, storage: Storage) -> None:
    sold = await keys.sell("cve", payment="pay_1")
    await take_back(storage, ring, "pay_1")  # it has not settled
    await settle(storage, ring, "pay_1")
    heir, token = await ring.rotate(sold.key.id)
    for one in (str(sold.token), token):
        assert (await ring.tokens.find(one)).state == "valid"
    await take_back(storage, ring, "pay_1")
    for one in (str(sold.token), token):
        assert (await ring.tokens.find(one)).state == "revoked"
    revocations = [(key_id, by) for key_id, action, by in await events_of(storage) if action == "revoked"]
    assert revocations == [(sold.key.id, "campus"), (heir.id, "campus")]


async def test_a_renewal_whose_payment_was_reversed_is_subtracted_and_the_key_stays(
    keys: BuildingKeys, ring: KeyRing, other_ring: KeyRing, storage: Storage
) -> None:
    key, token = await ring.issue("cve")
    for payment in ("pay_1", "pay_2"):
        await keys.sell("cve", payment=payment, renew=key.id)
        await settle(storage, ring, payment)
    await take_back(storage, other_ring, "pay_1")
    renewed = await other_ring.tokens.find(token)
    assert renewed.key is not None
    assert (renewed.state, renewed.key.expires_at) == ("valid", key.expires_at + 30 * DAY)
    assert (key.id, "shortened", "campus") in await events_of(storage)


async def test_a_key_whose_payment_was_reversed_keeps_the_time_of_the_payment_that_extended_it(
    keys: BuildingKeys, ring: KeyRing, storage: Storage
) -> None:
    sold = await keys.sell("cve", payment="pay_1")
    await settle(storage, ring, "pay_1")
    heir, token = await ring.rotate(sold.key.id)
    await keys.sell("cve", payment="pay_2", renew=heir.id)
    await settle(storage, ring, "pay_2")
    await take_back(storage, ring, "pay_1")
    kept = await ring.tokens.find(token)
    assert (kept.state, kept.key and kept.key.expires_at) == ("valid", heir.expires_at)
    await take_back(storage, ring, "pay_2")
    assert (await ring.tokens.find(token)).state == "expired"


async def test_a_year_that_is_taken_back_has_the_days_of_the_year_that_was_added(
    keys: BuildingKeys, ring: KeyRing, storage: Storage, clock: Clock
) -> None:
    key, _ = await ring.issue("campus-pass-year")
    clock.move(DAY)
    await keys.sell("campus-pass-year", payment="pay_1", renew=key.id)
    await settle(storage, ring, "pay_1")
    await take_back(storage, ring, "pay_1")
    assert await ring.get(key.id) == key


async def test_a_renewal_follows_a_key_that_was_rotated_twice_meanwhile(keys: BuildingKeys, ring: KeyRing, storage: Storage) -> None:
    key, _ = await ring.issue("cve")
    sold = await keys.sell("cve", payment="pay_1", renew=key.id)
    second, _ = await ring.rotate(key.id)
    third, token = await ring.rotate(second.id)
    await settle(storage, ring, "pay_1")
    found = await ring.tokens.find(token)
    assert found.key is not None
    assert (found.key.id, found.key.expires_at) == (third.id, sold.key.expires_at)


async def test_what_cannot_be_renewed_is_refused_before_it_is_paid(
    keys: BuildingKeys, ring: KeyRing, storage: Storage, products: Mapping[str, Product]
) -> None:
    revoked, _ = await ring.issue("cve")
    await ring.revoke(revoked.id)
    rotated, _ = await ring.issue("cve")
    heir, _ = await ring.rotate(rotated.id)
    other, token = await ring.issue("recorder")
    for key_id, said in (
        (revoked.id, "was revoked on .* a new key is needed"),
        (rotated.id, f"use {heir.id}, which replaced it"),
        (other.id, "is a key of recorder, and only recorder renews it; to have cve, buy it as a new key"),
        ("key_unknown", "no key 'key_unknown'"),
        (token, "the id of a key is not the key itself"),
    ):
        with pytest.raises(KeyRefused, match=said) as refused:
            await keys.sell("cve", payment="pay_1", renew=key_id)
        assert token[16:] not in str(refused.value)
    with pytest.raises(KeyRefused, match="is a key of recorder, and only recorder"):
        await keys.check_renewal("cve", other.id)
    rescoped = KeyRing(storage, {"cve": replace(products["cve"], scope="all")}, now=ring._now)
    for renewed in (rescoped.check_renewal("cve", (await ring.issue("cve")).key.id), rescoped.renew((await ring.issue("cve")).key.id)):
        with pytest.raises(KeyRefused, match="has the scope cve, and cve has all now; a new key is needed"):
            await renewed
    with pytest.raises(KeyRefused, match="no product 'zoo' is for sale; the products are: campus-pass, campus-pass-year, cve, recorder"):
        await keys.sell("zoo", payment="pay_1")
    assert await sales_of(storage) == []


@pytest.mark.both_databases
async def test_credits_come_and_go_with_their_payment_and_what_was_spent_of_them_is_written_off(storage: Storage, clock: Clock) -> None:
    ring = KeyRing(storage, {"prepaid": Product("prepaid", "cve", "5", Term.parse("30 days"), credits="5")}, now=clock)

    async def balance() -> int | None:
        async with storage.read() as session:
            account = await session.get(CreditAccount, sold.key.lineage)
            return account and account.balance

    sold = await ring.sell("prepaid", payment="pay_1", by="checkout")
    assert await balance() is None, "it is not paid yet"
    for _ in range(2):
        await settle(storage, ring, "pay_1")
    await ring.sell("prepaid", payment="pay_2", by="checkout", renew=sold.key.id)
    await settle(storage, ring, "pay_2")
    heir, _ = await ring.rotate(sold.key.id)
    assert await balance() == 10_000_000
    async with storage.write() as session:  # as calls do, which are not counted here
        assert await withdraw(session, sold.key.lineage, 7_000_000) == 7_000_000
    await take_back(storage, ring, "pay_2")
    assert await balance() == 0
    with pytest.raises(KeyRefused, match=r"has \$0 left, and \$2 cannot be taken from it"):
        await ring.correct(heir.id, -2_000_000, why="a mistake")
    await ring.correct(heir.id, 1_500_000, why="an outage")
    await take_back(storage, ring, "pay_1")
    assert await balance() == 0
    async with storage.read() as session:
        events = (await session.exec(select(KeyEvent).order_by(col(KeyEvent.id)))).all()
    assert [(event.action, event.credits) for event in events if event.credits] == [
        ("issued", 5_000_000),
        ("renewed", 5_000_000),
        ("shortened", -5_000_000),
        ("written off", 2_000_000),
        ("corrected", 1_500_000),
        ("revoked", -5_000_000),
        ("written off", 3_500_000),
    ]
    assert next(event.detail for event in events if event.action == "issued") == (
        "prepaid for 30 days, $5 of credits; good until 2026-09-20T12:00:00Z; payment pay_1"
    )


async def test_a_building_without_the_grant_sells_nothing_and_the_error_names_the_grant(ring: KeyRing, storage: Storage) -> None:
    keys = BuildingKeys(ring, building="kiosk", may_sell=False)
    with pytest.raises(KeyRefused, match=r'kiosk may not sell keys; write grants = \["keys"\] into \[buildings.kiosk\] of campus.toml'):
        await keys.sell("cve", payment="pay_1")
    assert await sales_of(storage) == []


async def test_every_building_may_look_keys_up(ring: KeyRing) -> None:
    keys = BuildingKeys(ring, building="wiki", may_sell=False)
    key, token = await ring.issue("cve")
    assert await keys.find(token) == Credential("valid", key)
    assert await keys.get(key.id) == key
    assert await keys.ends_of([key.lineage]) == {key.lineage: key.expires_at}


async def test_the_token_of_a_sale_is_neither_stored_nor_logged(
    keys: BuildingKeys, ring: KeyRing, storage: Storage, products: Mapping[str, Product], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="campus")
    sold = await keys.sell("cve", payment="pay_1")
    await settle(storage, ring, "pay_1")
    assert sold.token is not None
    secret = sold.token.removeprefix("campus_live_")
    async with storage.read() as session:
        tables = [(await session.exec(select(table))).all() for table in (KeyRow, KeyEvent, KeySale)]
    stored = repr([row.model_dump() for rows in tables for row in rows])
    assert secret[:12] in stored
    assert secret[:13] not in stored
    assert secret[12:] not in stored
    assert [record.message for record in caplog.records] == ["key issued"]
    assert secret[:12] not in repr([vars(record) for record in caplog.records])
    assert (await ring.list())[0].note == "payment pay_1"
