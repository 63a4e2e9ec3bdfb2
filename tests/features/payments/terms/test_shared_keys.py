"""Two callers with the same Idempotency-Key, and guessable keys: nobody gets another caller's answer with them."""

import sys
from secrets import token_urlsafe
from types import FrameType
from typing import Any

import httpx
import pytest
from features.payments.terms.paid_campus import DAY, DOLLAR, PATH, PaidCampus

from campus.features.chain import PAYMENT, Payer, headers_of, new_wallet, terms_of
from campus.idempotency_keys import weakness_of
from campus.testing import ORIGIN
from tests import patient

pytestmark = pytest.mark.anyio
BUY = "/v1/stall/buy"
STRONG = "fV3k9Zq0tLx7Rw2uBn5sYd8A"
WEAK = ("a" * 22, "1234567890123456789012", "abcabcabcabcabcabcabcabc", "0000-0001-0002-0003-0004", "idempotency-key-000001", "short")
FRAMES = ("http", "mcp")


async def second_payer(paid_campus: PaidCampus) -> Payer:
    payer = Payer(new_wallet(), max_dollars=50)
    await paid_campus.chain.mint(payer.wallet.address, 100 * DOLLAR)
    return payer


async def call(paid_campus: PaidCampus, frame: str, key: str, payment: Any = None, **body: Any) -> tuple[int, dict[str, Any]]:
    paid = {} if payment is None else {PAYMENT: payment}
    if frame == "http":
        headers = {"Idempotency-Key": key} | ({} if payment is None else headers_of(payment))
        answer = await (
            paid_campus.campus.http.post(BUY, json=body, headers=headers) if body else paid_campus.campus.http.get(PATH, headers=headers)
        )
        return answer.status_code, answer.json()
    async with paid_campus.mcp() as client:
        tool, arguments = ("buy", body) if body else ("text_of", DAY)
        result = await client.call_tool(tool, arguments, meta={"idempotency-key": key, **paid}, raise_on_error=False)
    said = result.structured_content or {}
    return (said["status"] if result.is_error else 200), said


@pytest.mark.parametrize("frame", FRAMES)
async def test_a_key_alone_finds_a_purchase_only_from_the_address_that_bought(paid_campus: PaidCampus, frame: str) -> None:
    key = token_urlsafe(24)
    status, bought = await call(paid_campus, frame, key, paid_campus.payer.payload(await paid_campus.terms()))
    assert (status, (await call(paid_campus, frame, key))[0]) == (200, 200)
    other = await second_payer(paid_campus)
    transport = httpx.ASGITransport(paid_campus.campus.app, client=("192.0.2.8", 4000))
    async with patient.AsyncClient(transport=transport, base_url=ORIGIN) as elsewhere:
        asked = await elsewhere.get(PATH, headers={"Idempotency-Key": key})
        assert (asked.status_code, asked.json()["code"]) == (402, "access_required"), "another's answer, for nothing"
        for payer, earned in ((other, 40_000), (paid_campus.payer, 40_000)):
            paid = headers_of(payer.payload(terms_of(asked))) | {"Idempotency-Key": key}
            answer = await elsewhere.get(PATH, headers=paid)
            assert (answer.status_code, answer.json()["text"]) == (200, bought["text"])
            assert await paid_campus.earned() == earned, "who bought it finds it by his wallet, uncharged"


@pytest.mark.parametrize("frame", FRAMES)
async def test_a_guessable_key_buys_nothing_and_the_refusal_says_how_to_make_one(paid_campus: PaidCampus, frame: str) -> None:
    await paid_campus.chain.mint(paid_campus.payer.wallet.address, 100 * DOLLAR)
    payer = Payer(paid_campus.payer.wallet, max_dollars=50)
    dear = terms_of(await paid_campus.campus.http.post(BUY, json={"product": "stall"}))
    for key in WEAK:
        for terms, body in ((dear, {"product": "stall"}), (await paid_campus.terms(), {})):
            status, said = await call(paid_campus, frame, key, payer.payload(terms), **body)
            assert (status, said["code"]) == (400, "weak_idempotency_key"), key
            assert "secrets.token_urlsafe" in said["detail"]
    status, said = await call(paid_campus, frame, WEAK[0])
    assert (status, said["code"]) == (402, "access_required")
    assert "Idempotency-Key" in said["detail"], "a caller who only asks for the terms learns it before paying"
    assert await paid_campus.earned() == 0
    assert paid_campus.facilitator.calls == []


@pytest.mark.parametrize("key", [STRONG, WEAK[0]])
@pytest.mark.parametrize("frame", FRAMES)
async def test_a_call_for_the_terms_judges_its_idempotency_key_once(paid_campus: PaidCampus, frame: str, key: str) -> None:
    judged = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal judged
        judged += event == "call" and frame.f_code is weakness_of.__code__

    sys.setprofile(count)
    try:
        status, _ = await call(paid_campus, frame, key)
    finally:
        sys.setprofile(None)
    assert (status, judged) == (402, 1)


async def test_an_answer_without_a_key_is_returned_again_only_to_the_address_that_bought_it(paid_campus: PaidCampus) -> None:

    def at(address: str) -> httpx.AsyncClient:
        return patient.AsyncClient(transport=httpx.ASGITransport(paid_campus.campus.app, client=(address, 4000)), base_url=ORIGIN)

    async with at("192.0.2.7") as buyer, at("192.0.2.8") as watcher, at("2001:db8:1:2::7") as six, at("2001:db8:1:2::8") as its_other:
        payment = headers_of(paid_campus.payer.payload(await paid_campus.terms()))
        assert (await buyer.get(PATH, headers=payment)).status_code == 200
        assert (await buyer.get(PATH, headers=payment)).status_code == 200
        for key in ({}, {"Idempotency-Key": STRONG}):
            refused = await watcher.get(PATH, headers=payment | key)
            assert (refused.status_code, refused.json()["code"]) == (409, "payment_used_elsewhere"), "the payment stands on the chain"
            assert "Idempotency-Key" in refused.json()["detail"]
        payment = headers_of(paid_campus.payer.payload(await paid_campus.terms()))
        assert (await six.get(PATH, headers=payment)).status_code == 200
        assert (await its_other.get(PATH, headers=payment)).status_code == 200, "one subscriber has a /64"
        payment = headers_of(paid_campus.payer.payload(await paid_campus.terms())) | {"Idempotency-Key": STRONG}
        assert (await buyer.get(PATH, headers=payment)).status_code == 200
        assert (await watcher.get(PATH, headers=payment)).status_code == 200, "who has the key has the answer"
    assert await paid_campus.earned() == 60_000


async def test_over_mcp_too_an_answer_without_a_key_stays_with_the_address_that_bought_it(paid_campus: PaidCampus) -> None:
    async with paid_campus.mcp() as client:
        payment = paid_campus.payer.payload(await paid_campus.terms())
        assert not (await client.call_tool("text_of", DAY, meta={PAYMENT: payment}, raise_on_error=False)).is_error
        transport = httpx.ASGITransport(paid_campus.campus.app, client=("192.0.2.8", 4000))
        async with patient.AsyncClient(transport=transport, base_url=ORIGIN) as watcher:
            refused = await watcher.get(PATH, headers=headers_of(payment))
        assert refused.json()["code"] == "payment_used_elsewhere"
        assert await paid_campus.earned() == 20_000
