"""Keys bought and renewed on a real chain, over HTTP and MCP; and who gets a lost answer again."""

import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from checkout.conftest import OpenPaidCampus
from sqlmodel import select

from campus.features.chain import Chain, Facilitator, Payer, headers_of, new_wallet, receipt_of
from campus.features.payments.tables import PaymentRow
from campus.testing import Clock, Frame, Reply, TestCampus

pytestmark = pytest.mark.anyio
KEYS = "/v1/checkout/keys"
DOLLAR = 1_000_000
PURSE = 1_000 * DOLLAR
PAY_TO = "0x" + "11" * 20
FRAMES: tuple[Frame, Frame] = ("http", "mcp")


@dataclass(frozen=True)
class Buyer:
    """A payer with a wallet, at one campus."""

    campus: TestCampus
    chain: Chain
    payer: Payer
    sold_before: int = 0

    async def keys(self) -> int:
        """How many were sold or issued since."""
        return len(await self.campus.service.keys.list()) - self.sold_before

    async def spent(self) -> int:
        return PURSE - await self.chain.balance(self.payer.wallet.address)

    async def pays(self, **arguments: Any) -> dict[str, Any]:
        unpaid = await self.campus.call("buy_key", **arguments)
        assert unpaid.terms is not None
        return self.payer.payload(unpaid.terms)

    async def sends(self, payment: Mapping[str, Any], *, frame: Frame = "http", **arguments: Any) -> Reply:
        said = {name: value for name, value in arguments.items() if value is not None}
        return await replace(self.campus, frame=frame).call("buy_key", payment=payment, **said)

    async def buys(self, product: str, *, frame: Frame = "http", **more: Any) -> dict[str, Any]:
        at = replace(self.campus, frame=frame)
        reply = await at.call("buy_key", payer=self.payer, product=product, idempotency_key=fresh_key(), **more)
        assert reply.status == 200, reply.data
        assert reply.receipt is not None
        assert reply.receipt["success"] is True
        bought: dict[str, Any] = reply.data
        return bought


def fresh_key() -> str:
    return secrets.token_urlsafe(16)


async def buyer_at(campus: TestCampus, chain: Chain, *, max_dollars: int | None = 149) -> Buyer:
    wallet = new_wallet()
    await chain.mint(wallet.address, PURSE)
    return Buyer(campus, chain, Payer(wallet, max_dollars=max_dollars), len(await campus.service.keys.list()))


@pytest.fixture(scope="module")
def its_clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
async def its_campus(open_paid_campus: OpenPaidCampus, its_clock: Clock) -> AsyncIterator[TestCampus]:
    async with open_paid_campus(clock=its_clock) as campus:
        yield campus


@pytest.fixture
def clock(its_clock: Clock) -> Clock:
    """The right time, whatever it was for the test before."""
    its_clock.time = datetime.now(UTC)
    return its_clock


@pytest.fixture
async def buyer(its_campus: TestCampus, chain: Chain, clock: Clock) -> Buyer:
    """Somebody new, at a campus that sells to all tests of the module."""
    return await buyer_at(its_campus, chain)


async def opens(campus: TestCampus, key: str) -> tuple[bool, bool]:
    over_http, over_mcp = [await replace(campus, frame=frame).call("roll", building="dice", key=key) for frame in FRAMES]
    return over_http.data == "six", over_mcp.data == "six"


async def test_a_key_bought_over_http_by_the_stock_client_opens_both_frames(buyer: Buyer, chain: Chain, clock: Clock) -> None:
    earned = await chain.balance(PAY_TO)
    async with buyer.payer.http("http://campus.test", transport=httpx.ASGITransport(buyer.campus.app)) as client:
        answer = await client.post(KEYS, json={"product": "campus-pass-year"}, headers={"Idempotency-Key": fresh_key()})
    assert answer.status_code == 200, answer.text
    bought = answer.json()
    assert (bought["action"], bought["product"], bought["scope"]) == ("new", "campus-pass-year", "all")
    assert datetime.fromisoformat(bought["issued_at"]) == clock()
    year_later = clock().replace(year=clock().year + 1)
    assert datetime.fromisoformat(bought["valid_until"]) == year_later.astimezone(UTC)
    assert [one["name"] for one in bought["use"]["opens"]] == ["dice"]
    assert await opens(buyer.campus, bought["key"]) == (True, True)
    assert await buyer.spent() == 149 * DOLLAR == await chain.balance(PAY_TO) - earned
    assert await chain.gas(buyer.payer.wallet.address) == 0
    receipt = receipt_of(answer)
    assert receipt["success"] is True
    assert [one.transaction for one in await chain.transfers(sender=buyer.payer.wallet.address)] == [receipt["transaction"]]
    assert "no-store" in answer.headers["cache-control"]
    [listed] = [one for one in await buyer.campus.service.keys.list() if one.key.id == bought["key_id"]]
    assert listed.note.startswith("payment pay_")


async def test_the_stock_client_refuses_until_its_limit_is_raised(buyer: Buyer) -> None:
    careful = Payer(buyer.payer.wallet)
    async with careful.http("http://campus.test", transport=httpx.ASGITransport(buyer.campus.app)) as client:
        with pytest.raises(Exception, match="max_amount_per_payment"):
            await client.post(KEYS, json={"product": "campus-pass"}, headers={"Idempotency-Key": fresh_key()})
    assert await buyer.spent() == 0


async def test_a_renewal_keeps_the_key_and_extends_its_term(buyer: Buyer, clock: Clock, frame: Frame) -> None:
    bought = await buyer.buys("dice")
    renewed = await buyer.buys("dice", frame=frame, renew=bought["key_id"])
    assert (renewed["action"], renewed["key"], renewed["key_id"]) == ("renewed", None, bought["key_id"])
    until = datetime.fromisoformat(renewed["valid_until"])
    assert until == datetime.fromisoformat(bought["valid_until"]) + timedelta(days=30) == clock() + timedelta(days=60)
    assert await buyer.spent() == DOLLAR
    clock.time = until - timedelta(seconds=1)
    assert await opens(buyer.campus, bought["key"]) == (True, True)
    clock.time = until
    assert await opens(buyer.campus, bought["key"]) == (False, False)


async def test_a_key_that_cannot_be_renewed_costs_nothing(buyer: Buyer, frame: Frame) -> None:
    keys = buyer.campus.service.keys
    revoked, _ = await keys.issue("dice")
    await keys.revoke(revoked.id)
    rotated, _ = await keys.issue("dice")
    heir, _ = await keys.rotate(rotated.id)
    other, _ = await keys.issue("cve")
    revoked_as_it_is, rotated_as_it_is = await keys.get(revoked.id), await keys.get(rotated.id)
    for key_id, said in (
        (revoked.id, "was revoked"),
        (rotated.id, heir.id),
        (other.id, "is a key of cve, and only cve renews it; to have dice, buy it as a new key"),
        ("key_000000000000", "no key 'key_000000000000'"),
    ):
        payment = await buyer.pays(product="dice", renew=key_id)
        reply = await buyer.sends(payment, frame=frame, product="dice", renew=key_id, idempotency_key=fresh_key())
        assert (reply.status, reply.code) == (409, "key_not_sold")
        assert said in reply.data["detail"]
        assert reply.data["detail"].endswith("Nothing was charged.")
        assert (await keys.get(key_id)) in (revoked_as_it_is, rotated_as_it_is, other, None), "no key became another"
    assert await buyer.spent() == 0
    async with buyer.campus.service.core.storage.read() as session:
        mine = PaymentRow.payer == buyer.payer.wallet.address.lower()
        assert (await session.exec(select(PaymentRow).where(mine))).all() == [], "nothing was reserved"


async def test_five_renewals_at_once_report_five_ends_of_which_each_was_true_when_it_was_charged(buyer: Buyer, clock: Clock) -> None:
    bought = await buyer.buys("dice")
    ends: list[datetime] = []

    async def renew(frame: Frame) -> None:
        renewed = await buyer.buys("dice", frame=frame, renew=bought["key_id"])
        ends.append(datetime.fromisoformat(renewed["valid_until"]))

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(renew, FRAMES[number % 2])
    assert sorted(ends) == [clock() + timedelta(days=30 * (2 + number)) for number in range(5)]
    assert await buyer.spent() == 6 * DOLLAR // 2


async def test_a_key_that_is_revoked_after_a_renewal_is_answered_is_not_charged(
    buyer: Buyer, facilitator: Facilitator, clock: Clock
) -> None:
    keys = buyer.campus.service.keys
    sell = keys.sell

    async def sell_and_revoke(*arguments: Any, **more: Any) -> Any:
        sold = await sell(*arguments, **more)
        await keys.revoke(sold.key.id)
        return sold

    first, second = (await keys.issue("dice")).key.id, (await keys.issue("dice")).key.id
    keys.sell = sell_and_revoke  # type: ignore[method-assign]  # at this moment, whichever process does it
    reply = await buyer.sends(await buyer.pays(product="dice", renew=first), product="dice", renew=first, idempotency_key=fresh_key())
    del keys.sell
    assert (reply.status, reply.code) == (409, "key_not_sold")
    facilitator.faults.settle_status_before = 503
    wanted = {"product": "dice", "renew": second, "idempotency_key": fresh_key()}
    payment = await buyer.pays(product="dice", renew=second)
    try:
        assert (await buyer.sends(payment, **wanted)).code == "payment_in_flight"
    finally:
        facilitator.faults.clear()
    await keys.revoke(second)
    for resent in (False, True):
        clock.move(timedelta(seconds=11))
        if resent:
            assert (await buyer.sends(payment, **wanted)).code == "payment_in_flight"
        else:
            await buyer.campus.service.run_job("payments.reconcile_payments")
    assert facilitator.outcomes("settle")[-1] == "503", "it was not submitted again"
    assert await buyer.spent() == 0


async def test_an_invalid_key_id_is_refused_before_anything_is_reserved(buyer: Buyer) -> None:
    for renew in ("campus_live_" + "a" * 38, "key_short", "' OR 1=1 --"):
        payment = await buyer.pays(product="dice", renew=renew)
        for frame in FRAMES:
            reply = await buyer.sends(payment, frame=frame, product="dice", renew=renew, idempotency_key=fresh_key())
            assert (reply.status, reply.code) == (422, "invalid_request"), renew
    assert await buyer.spent() == 0


async def test_a_payment_without_a_strong_idempotency_key_is_not_accepted(buyer: Buyer) -> None:
    payment = await buyer.pays(product="dice")
    for idempotency_key in (None, "", "short", "0" * 22, "my-idempotency-key-for-today"):
        for frame in FRAMES:
            reply = await buyer.sends(payment, frame=frame, product="dice", idempotency_key=idempotency_key)
            code = "weak_idempotency_key" if idempotency_key else "idempotency_key_required"
            assert (reply.status, reply.code) == (400, code), idempotency_key
            assert "token_urlsafe" in reply.data["detail"]
    assert await buyer.spent() == 0
    taken = await buyer.sends(payment, product="dice", idempotency_key=fresh_key())
    assert taken.status == 200, "the payment is as good as before"


async def test_two_buyers_with_one_idempotency_key_get_a_key_each_and_neither_the_others(buyer: Buyer, chain: Chain, frame: Frame) -> None:
    other, idempotency_key = await buyer_at(buyer.campus, chain), fresh_key()
    wanted = {"product": "dice", "idempotency_key": idempotency_key}
    bought = [await one.sends(await one.pays(product="dice"), frame=frame, **wanted) for one in (buyer, other)]
    assert [one.status for one in bought] == [200, 200]
    assert bought[0].data["key"] != bought[1].data["key"]
    assert [await one.spent() for one in (buyer, other)] == [DOLLAR // 2] * 2
    for one, first in zip((buyer, other), bought, strict=True):
        again = await one.sends(await one.pays(product="dice"), frame=frame, **wanted)
        assert (again.status, again.data) == (200, first.data)
    by_key_alone = await replace(buyer.campus, frame=frame).call("buy_key", **wanted)
    assert (by_key_alone.status, by_key_alone.code) == (409, "idempotency_key_ambiguous")
    assert "campus_live_" not in str(by_key_alone.data)


@pytest.mark.parametrize("first_frame", ["http", "mcp"])
async def test_a_lost_answer_is_returned_again_over_either_frame_and_charged_once(buyer: Buyer, first_frame: Frame) -> None:
    payment, idempotency_key = await buyer.pays(product="dice"), fresh_key()
    first = await buyer.sends(payment, frame=first_frame, product="dice", idempotency_key=idempotency_key)
    assert first.status == 200
    assert first.data["key"].startswith("campus_live_")
    for frame in FRAMES:
        for more in ({}, {"renew": None}):  # null is the default: the same call, whether it is written or not
            at, wanted = replace(buyer.campus, frame=frame), {"product": "dice", "idempotency_key": idempotency_key, **more}
            again = await at.call("buy_key", payment=payment, **wanted)
            assert (again.status, again.data, again.receipt) == (200, first.data, first.receipt), (frame, more)
    assert await buyer.spent() == DOLLAR // 2
    assert await buyer.keys() == 1


async def test_a_client_that_lost_the_answer_and_signs_a_new_payment_is_not_charged_again(buyer: Buyer, frame: Frame, clock: Clock) -> None:
    idempotency_key = fresh_key()
    wanted = {"product": "dice", "idempotency_key": idempotency_key}
    first = await buyer.sends(await buyer.pays(product="dice"), **wanted)
    clock.move(timedelta(hours=23))
    for again in (
        await buyer.sends(await buyer.pays(product="dice"), frame=frame, **wanted),
        await replace(buyer.campus, frame=frame).call("buy_key", **wanted),
        await replace(buyer.campus, frame=frame).call("buy_key", payer=buyer.payer, **wanted),
    ):
        assert (again.status, again.data, again.receipt) == (200, first.data, first.receipt)
    assert await buyer.spent() == DOLLAR // 2
    assert await buyer.keys() == 1


async def test_an_idempotency_key_buys_one_thing(buyer: Buyer, frame: Frame) -> None:
    idempotency_key = fresh_key()
    at = replace(buyer.campus, frame=frame)
    bought = (await buyer.sends(await buyer.pays(product="dice"), product="dice", idempotency_key=idempotency_key)).data
    for other in ({"product": "cve"}, {"product": "dice", "renew": bought["key_id"]}):
        for reply in (
            await at.call("buy_key", idempotency_key=idempotency_key, **other),
            await buyer.sends(await buyer.pays(**other), frame=frame, idempotency_key=idempotency_key, **other),
        ):
            assert (reply.status, reply.code) == (422, "idempotency_key_reused")
    assert await buyer.spent() == DOLLAR // 2


@pytest.mark.both_databases
async def test_simultaneous_calls_with_different_payments_and_one_idempotency_key_buy_one_key(
    open_paid_campus: OpenPaidCampus, storage_url: str, chain: Chain
) -> None:
    async with open_paid_campus(storage_url) as campus:
        buyer = await buyer_at(campus, chain)
        idempotency_key, replies = fresh_key(), list[Reply]()

        async def send(payment: Mapping[str, Any], frame: Frame) -> None:
            replies.append(await buyer.sends(payment, frame=frame, product="dice", idempotency_key=idempotency_key))

        payments = [await buyer.pays(product="dice") for _ in range(8)]
        async with anyio.create_task_group() as tasks:
            for number, payment in enumerate(payments):
                tasks.start_soon(send, payment, FRAMES[number % 2])
        assert {reply.status for reply in replies} == {200}
        assert len({reply.data["key"] for reply in replies}) == 1
        assert await buyer.spent() == DOLLAR // 2


async def test_a_purchase_in_doubt_is_not_offered_for_sale_again_and_is_charged_by_the_call_that_asks_for_it(
    buyer: Buyer, facilitator: Facilitator, clock: Clock
) -> None:
    payment, wanted = await buyer.pays(product="dice"), {"product": "dice", "idempotency_key": fresh_key()}
    facilitator.faults.settle_status_before = 500
    try:
        await buyer.sends(payment, **wanted)
        clock.move(timedelta(seconds=5))
        unpaid = await buyer.campus.call("buy_key", **wanted)
    finally:
        facilitator.faults.clear()
    assert (unpaid.status, unpaid.code) == (409, "payment_in_flight")
    assert "terms" not in unpaid.data
    assert await buyer.spent() == 0
    clock.move(timedelta(seconds=10))
    bought = await buyer.campus.call("buy_key", **wanted)
    assert (bought.status, await opens(buyer.campus, bought.data["key"])) == (200, (True, True))
    assert await buyer.spent() == DOLLAR // 2


async def test_the_idempotency_key_is_the_same_in_the_header_and_in_the_body(buyer: Buyer) -> None:
    payment, idempotency_key = await buyer.pays(product="dice"), fresh_key()
    headers = {**headers_of(payment), "Idempotency-Key": idempotency_key}
    first = await buyer.campus.http.post(KEYS, json={"product": "dice"}, headers=headers)
    assert first.status_code == 200
    again = await buyer.sends(payment, product="dice", idempotency_key=idempotency_key)
    assert again.data == first.json()
    assert await buyer.spent() == DOLLAR // 2


async def test_a_watcher_of_the_chain_gets_nothing_without_the_idempotency_key(buyer: Buyer) -> None:
    payment = await buyer.pays(product="dice")
    bought = (await buyer.sends(payment, product="dice", idempotency_key=fresh_key())).data
    for frame in FRAMES:
        replies = [
            await buyer.sends(payment, frame=frame, product="dice"),
            await buyer.sends(payment, frame=frame, product="dice", idempotency_key=fresh_key()),
            await buyer.sends(payment, frame=frame, product="dice", renew=bought["key_id"], idempotency_key=fresh_key()),
            await buyer.sends(payment, frame=frame, product="cve", idempotency_key=fresh_key()),
        ]
        assert [reply.code for reply in replies] == ["idempotency_key_required"] + ["payment_already_used"] * 3
        assert bought["key"][12:] not in repr(replies)
    assert await buyer.spent() == DOLLAR // 2
    assert await buyer.keys() == 1


async def test_neither_the_key_nor_the_idempotency_key_is_readable_in_the_database(
    open_paid_campus: OpenPaidCampus, chain: Chain, tmp_path: Path
) -> None:
    async with open_paid_campus(f"sqlite:{tmp_path / 'data'}") as campus:
        buyer = await buyer_at(campus, chain)
        payment, idempotency_key = await buyer.pays(product="dice"), fresh_key()
        bought = (await buyer.sends(payment, product="dice", idempotency_key=idempotency_key)).data
        stored = b"".join(path.read_bytes() for path in (tmp_path / "data").iterdir())
    assert bought["key_id"].encode() in stored
    for secret in (bought["key"], bought["key"][24:], idempotency_key):
        assert secret.encode() not in stored


async def test_after_a_day_the_answer_is_not_returned_again_and_the_key_is_still_valid(buyer: Buyer, clock: Clock) -> None:
    payment, idempotency_key = await buyer.pays(product="dice"), fresh_key()
    bought = (await buyer.sends(payment, product="dice", idempotency_key=idempotency_key)).data
    clock.move(timedelta(hours=24))
    late = await buyer.sends(payment, product="dice", idempotency_key=idempotency_key)
    assert (late.status, late.code) == (409, "payment_already_used")
    assert await opens(buyer.campus, bought["key"]) == (True, True)


async def test_a_contract_wallet_buys_a_key_and_its_lost_answer_comes_again_to_it_alone(buyer: Buyer, frame: Frame) -> None:
    wallet = await buyer.chain.contract_wallet(is_deployed=frame == "http")
    await buyer.chain.mint(wallet.address, PURSE)
    buyer = replace(buyer, payer=Payer(wallet))
    payment, key = await buyer.pays(product="dice"), fresh_key()
    bought, again = [await buyer.sends(payment, frame=frame, product="dice", idempotency_key=key) for _ in range(2)]
    assert (bought.status, again.data) == (200, bought.data)
    other = await buyer.sends(payment, frame=frame, product="dice", idempotency_key=fresh_key())
    assert (other.status, other.data["code"]) == (409, "payment_already_used")
    assert (await replace(buyer.campus, frame=frame).call("roll", key=bought.data["key"], building="dice")).status == 200
    assert await buyer.spent() == DOLLAR // 2
