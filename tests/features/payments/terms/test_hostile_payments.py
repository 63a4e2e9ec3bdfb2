"""Payments that no honest client sends, over both frames: refused with a reason, without an answer, a charge or a server error."""

import json
from typing import Any

import httpx
import pytest
from features.payments.terms.paid_campus import DAY, PATH, PaidCampus
from features.payments.terms.samples import GARBAGE, PAYER, SENTINEL, header, payment_v1, payment_v2

from campus.features.chain import PAYMENT, Payer, headers_of, new_wallet, terms_of
from campus.testing import ORIGIN, Frame, TestCampus

pytestmark = pytest.mark.anyio
STRANGER = "0x" + "99" * 20
HOSTILE: dict[str, dict[str, Any]] = {
    "another network": {"network": "eip155:84532"},
    "a network that is none": {"network": "eip155:0"},
    "another asset": {"asset": STRANGER},
    "another recipient": {"to": STRANGER},
    "another recipient, said and signed": {"to": STRANGER, "pay_to": STRANGER},
    "too little": {"value": 19_999},
    "too little, said and signed": {"value": 1, "amount": 1},
    "too much": {"value": 20_001},
    "nothing": {"value": 0},
    "expired": {"valid_before": 1},
    "not yet valid": {"valid_after": 3_900_000_000, "valid_before": 4_000_000_000},
    "valid for ever": {"valid_before": 2**62},
    "another token's name": {"extra": {"name": "USDC", "version": "2"}},
    "another call": {"resource": "http://campus.test/v1/stall/text/2026-01-03"},
    "another host": {"resource": "http://evil.example/v1/stall/text/2026-01-02"},
    "a signature of zeros": {"signature": "0x" + "00" * 65},
    "a signature that is short": {"signature": "0x77"},
    "a signature of another": {
        "signature": new_wallet().sign_transfer(
            {"from": PAYER, "to": STRANGER, "value": "1", "validAfter": "0", "validBefore": "2", "nonce": "0x" + "01" * 32}
        )
    },
    "somebody else's money": {"sender": STRANGER},
}


async def test_what_does_not_fit_or_is_not_good_is_refused_on_both_frames_and_nothing_moves(paid_campus: PaidCampus) -> None:
    terms = await paid_campus.terms()
    for frame in ("http", "mcp"):
        for case, changes in HOSTILE.items():
            status, said = await paid_campus.offer(frame, paid_campus.payer.payload(terms, **changes))
            assert (status, said["code"]) == (402, "payment_refused"), (frame, case, said)
            assert SENTINEL not in json.dumps(said), case
            assert said["accepts"], case
            assert len(said["error"]) > 10, (case, said["error"])
    assert paid_campus.facilitator.outcomes("settle") == []
    assert await paid_campus.earned() == 0
    assert (await paid_campus.offer("mcp", paid_campus.payer.payload(terms)))[0] == 200  # the same call, honestly paid


async def test_a_payer_without_funds_or_with_a_used_nonce_gets_nothing(paid_campus: PaidCampus) -> None:
    terms = await paid_campus.terms()
    for frame in ("http", "mcp"):
        status, said = await paid_campus.offer(frame, Payer(new_wallet()).payload(terms))
        assert (status, said["code"]) == (402, "payment_refused"), said
        to_himself = paid_campus.payer.payload(terms, to=paid_campus.payer.wallet.address)
        nonce = to_himself["payload"]["authorization"]["nonce"]
        await paid_campus.chain.transfer_with_authorization(to_himself)
        for payment in (paid_campus.payer.payload(terms, nonce=nonce), to_himself):
            status, said = await paid_campus.offer(frame, payment)
            assert (status, said["code"]) == (402, "payment_refused"), said
        withdrawn = paid_campus.payer.payload(terms)
        await paid_campus.chain.cancel_authorization(paid_campus.payer.wallet, withdrawn["payload"]["authorization"]["nonce"])
        status, said = await paid_campus.offer(frame, withdrawn)
        assert (status, said["code"]) == (402, "payment_refused"), said
    assert await paid_campus.earned() == 0


async def test_a_price_that_changed_meanwhile_is_refused_with_the_new_one(paid_campus: PaidCampus) -> None:
    stale = paid_campus.payer.payload(await paid_campus.terms(), amount=10_000, value=10_000)
    for frame in ("http", "mcp"):
        status, said = await paid_campus.offer(frame, stale)
        entry = said["accepts"][0]
        assert (status, entry.get("maxAmountRequired", entry.get("amount"))) == (402, "20000")


async def test_garbage_is_a_400_on_either_frame_and_refused_in_the_tools_result_in_the_meta(campus: TestCampus) -> None:
    for case, garbage in GARBAGE.items():
        for name in ("PAYMENT-SIGNATURE", "X-PAYMENT"):
            if case == "v1 in the header of v2" and name == "X-PAYMENT":
                continue  # there it is none
            answer = await campus.http.get(PATH, headers={name: garbage})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_payment"), (case, name)
            assert SENTINEL not in answer.text, case
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
    for value in (7, "garbage", [], {}, {"x402Version": 2}, {"x402Version": 1}, payment_v1(nonce="0x1"), True, "{}"):
        meta = {"io.modelcontextprotocol/protocolVersion": "2025-11-25", PAYMENT: value}
        params = {"name": "text_of", "arguments": DAY, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await campus.http.post("/stall/mcp", json=body, headers=headers)
        assert answer.status_code == 200, value
        assert '"code":"invalid_payment"' in answer.text.replace(" ", ""), value
        assert SENTINEL not in answer.text, value


async def test_while_the_facilitator_is_down_terms_are_shown_and_payments_wait(campus: TestCampus, frame: Frame) -> None:
    reply = await campus.call("text_of", **DAY)
    assert (reply.status, reply.code) == (402, "access_required")
    terms = terms_of(await campus.http.get(PATH))
    answer = await campus.http.get(PATH, headers={"PAYMENT-SIGNATURE": header(payment_v2(terms, validBefore=in_a_minute(campus)))})
    assert (answer.status_code, answer.json()["code"]) == (402, "payment_unverified")
    assert int(answer.headers["retry-after"]) > 0
    assert SENTINEL not in answer.text
    assert (await campus.call("sample")).status == 200


def in_a_minute(campus: Any) -> str:
    return str(int(campus.service.sites["stall"].now().timestamp()) + 60)


async def test_a_good_payment_gives_access_to_nothing_else(paid_campus: PaidCampus) -> None:
    headers = headers_of(paid_campus.payer.payload(await paid_campus.terms()))
    spellings = [PATH + "/", "/" + PATH, PATH.replace("/", "//"), PATH.upper(), PATH + "%00"]
    spellings += [PATH + ";a=b", PATH + "%2F", "/V1/stall/text/2026-01-02"]
    for spelling in spellings:
        for method in ("GET", "HEAD", "POST", "OPTIONS", "TRACE"):
            answer = await paid_campus.campus.http.request(method, httpx.URL(ORIGIN + spelling), headers=headers)
            assert answer.status_code < 500, (method, spelling)
            assert SENTINEL not in answer.text, (method, spelling)
    head = await paid_campus.campus.http.head(PATH, headers=headers)
    assert (head.status_code, head.text) == (402, "")
    assert "payment-response" not in head.headers
    for host in ("evil.example", "campus.test.evil.example", "campus.test@evil.example"):
        answer = await paid_campus.campus.http.get(PATH, headers=headers | {"Host": host})
        assert answer.status_code in (400, 421)
    assert paid_campus.facilitator.calls == []
    assert (await paid_campus.campus.http.get(PATH, headers=headers | {"Host": "CAMPUS.TEST"})).status_code == 200
    assert await paid_campus.earned() == 20_000


async def test_the_terms_name_the_public_address_whatever_the_host_says(campus: TestCampus) -> None:
    for host in ("campus.test", "CAMPUS.TEST", "127.0.0.1:8000"):
        answer = await campus.http.get(PATH, headers={"Host": host, "X-Forwarded-Host": "evil.example"})
        if answer.status_code == 402:
            assert terms_of(answer)["resource"]["url"] == f"{ORIGIN}{PATH}"
