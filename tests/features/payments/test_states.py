"""What is done with a payment that is presented: a table of states, and properties that hold for all of them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campus.features.payments.payment import Payment, Sale
from campus.features.payments.states import TRANSITIONS, mismatch_of, next_step, step_for
from campus.features.payments.tables import PaymentRow
from twins import Problem

NOW = datetime(2026, 8, 21, 12, 0, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
ASSET, PAY_TO = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x" + "Ab" * 20
REQUIREMENTS = {"network": "eip155:8453", "payTo": PAY_TO, "maxTimeoutSeconds": 300}
SALE = Sale("cve", "brief", "http", "https://x/brief", ASSET, 20_000, REQUIREMENTS, lambda code, reason: Problem(402, code, reason))
PAYMENT = Payment(
    version=2,
    network="eip155:8453",
    payer="0x" + "12" * 20,
    pay_to=PAY_TO.lower(),
    value=20_000,
    valid_after=SECONDS - 600,
    valid_before=SECONDS + 300,
    nonce="0x" + "34" * 32,
    digest=b"p" * 32,
    payload={},
    resource="https://x/brief",
    accepted={"asset": ASSET},
)
SECRET = replace(SALE, idempotency_key="k" * 22)
OTHER = replace(PAYMENT, digest=b"q" * 32)
AHEAD, PAST = NOW + timedelta(seconds=1), NOW


def row(state: str, **changes: Any) -> PaymentRow:
    values = {
        "id": "pay_1",
        "network": "eip155:8453",
        "asset": ASSET.lower(),
        "payer": PAYMENT.payer,
        "nonce": PAYMENT.nonce,
        "amount": 20_000,
        "pay_to": PAYMENT.pay_to,
        "valid_before": PAYMENT.valid_before,
        "payment": PAYMENT.digest,
        "resource": SALE.digest,
        "building": "cve",
        "tool": "brief",
        "frame": "http",
        "client": SALE.client,
        "state": state,
        "holder": "a",
        "lease_until": PAST,
        "reserved_at": NOW,
    }
    return PaymentRow(**{**values, **changes})


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (None, "reserve"),
        (row("released"), "reserve"),
        (row("released", payment=b"other", resource=b"other"), "reserve"),
        (row("reserved", lease_until=AHEAD), "wait"),
        (row("reserved"), "reserve"),
        (row("reserved", resource=b"other"), "reserve"),
        (row("reserved", lease_until=AHEAD, resource=b"other"), "refuse"),
        (row("reserved", lease_until=AHEAD, payment=b"other"), "refuse"),
        (row("settling", lease_until=AHEAD), "wait"),
        (row("settling"), "resolve"),
        (row("settling", payment=b"other"), "refuse"),
        (row("unknown", lease_until=AHEAD), "wait"),
        (row("unknown"), "resolve"),
        (row("unknown", lease_until=NOW + timedelta(hours=1)), "resolve"),
        (row("unknown", resource=b"other"), "refuse"),
        (row("settled", answer=b"{}", answer_until=AHEAD), "replay"),
        (row("settled", answer=b"{}", answer_until=NOW), "refuse"),
        (row("settled", answer=None, answer_until=AHEAD), "refuse"),
        (row("settled", answer=b"{}", answer_until=AHEAD, resource=b"other"), "refuse"),
        (row("settled", answer=b"{}", answer_until=AHEAD, payment=b"other"), "refuse"),
        (row("reversed", answer=b"{}", answer_until=AHEAD), "refuse"),
    ],
)
def test_each_state_has_its_step(found: PaymentRow | None, step: str) -> None:
    assert step_for(found, PAYMENT, SALE, now=NOW) == step


@pytest.mark.parametrize(
    ("found", "step"),
    [
        (row("released"), "reserve"),
        (row("reserved"), "reserve"),
        (row("reserved", lease_until=AHEAD), "wait"),
        (row("settling", lease_until=AHEAD), "wait"),
        (row("settling"), "look"),
        (row("unknown"), "look"),
        (row("settled", answer=b"{}", answer_until=AHEAD), "replay"),
        (row("settled", answer=b"{}", answer_until=AHEAD, resource=b"other"), "reused"),
    ],
)
@pytest.mark.parametrize("payment", [OTHER, None])
def test_a_purchase_is_found_by_its_idempotency_key_with_any_payment(found: PaymentRow, step: str, payment: Payment | None) -> None:
    found.purchase = SECRET.purchase
    assert step_for(found, payment, SECRET, now=NOW) == step
    if found.state in ("settled", "unknown"):
        assert step_for(found, payment, replace(SECRET, idempotency_key="o" * 22), now=NOW) == "refuse"


def test_of_the_rows_of_an_authorization_and_a_purchase_the_one_that_blocks_decides() -> None:
    free, taken = row("released"), row("unknown", lease_until=AHEAD, payment=b"other", purchase=SECRET.purchase)
    assert next_step([free, taken], PAYMENT, SECRET, now=NOW) == ("wait", taken)
    assert next_step([free], PAYMENT, SECRET, now=NOW) == ("reserve", None)


@pytest.mark.parametrize("state", ["settling", "unknown", "settled"])
def test_another_payer_and_another_address_find_nothing(state: str) -> None:
    mine = row(state, answer=b"{}", answer_until=AHEAD, client="192.0.2.7", purchase=SECRET.purchase)
    stranger = replace(OTHER, payer="0x" + "99" * 20)
    assert step_for(mine, stranger, SECRET, now=NOW) == "refuse"
    assert step_for(mine, OTHER, SECRET, now=NOW) != "refuse"
    mine.purchase = None
    assert step_for(mine, PAYMENT, replace(SALE, client="192.0.2.8"), now=NOW) == "elsewhere"
    assert step_for(mine, PAYMENT, replace(SECRET, client="192.0.2.8"), now=NOW) == "elsewhere"
    assert step_for(mine, PAYMENT, replace(SALE, client="192.0.2.7"), now=NOW) in ("resolve", "replay")


def test_a_key_without_a_payment_finds_nothing_where_two_payers_used_it() -> None:
    mine, others = (row("settled", purchase=SECRET.purchase, answer=b"{}", answer_until=AHEAD, payer=payer) for payer in ("0x1", "0x2"))
    assert next_step([mine, others], None, SECRET, now=NOW) == ("ambiguous", None)
    others.state = "released"
    assert next_step([mine, others], None, SECRET, now=NOW) == ("replay", mine)
    assert next_step([mine], None, replace(SECRET, client="192.0.2.8"), now=NOW) == ("reserve", None)


@given(
    state=st.sampled_from(sorted(TRANSITIONS)),
    lease=st.integers(-5, 5),
    payment=st.sampled_from([PAYMENT.digest, b"other"]),
    resource=st.sampled_from([SALE.digest, b"other"]),
    answer=st.sampled_from([None, b"{}"]),
)
def test_a_tool_runs_only_where_nothing_can_have_been_charged(
    state: str, lease: int, payment: bytes, resource: bytes, answer: bytes | None
) -> None:
    found = row(
        state,
        lease_until=NOW + timedelta(seconds=lease),
        payment=payment,
        resource=resource,
        answer=answer,
        answer_until=NOW + timedelta(minutes=1),
    )
    step = step_for(found, PAYMENT, SALE, now=NOW)
    assert step != "reserve" or state in ("reserved", "released")
    assert step != "replay" or (state == "settled" and payment == PAYMENT.digest and resource == SALE.digest)


def test_a_charge_is_final_but_for_its_reversal_and_begins_with_a_reservation() -> None:
    assert (TRANSITIONS["settled"], TRANSITIONS["reversed"]) == (("reversed",), ())
    assert {state for state, after in TRANSITIONS.items() if "settled" in after} == {"settling", "unknown"}
    assert {state for state, after in TRANSITIONS.items() if "settling" in after} == {"reserved"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"resource": None, "accepted": None, "version": 1}, None),
        ({"network": "eip155:84532"}, "on the network eip155:84532"),
        ({"accepted": {"asset": "0x" + "00" * 20}}, "another asset"),
        ({"accepted": {}}, "another asset"),
        ({"pay_to": "0x" + "99" * 20}, "pays to 0x9999"),
        ({"value": 19_999}, "the price is 20000"),
        ({"value": 20_001}, "the price is 20000"),
        ({"resource": "https://x/other"}, "another call"),
        ({"valid_before": SECONDS}, "expired"),
        ({"valid_after": SECONDS + 301}, "not valid yet"),
        ({"valid_before": SECONDS + 300 + 601}, "more than 900 seconds"),
    ],
)
def test_the_refusal_of_a_payment_that_does_not_fit_says_why(changes: dict[str, Any], reason: str | None) -> None:
    found = mismatch_of(replace(PAYMENT, **changes), SALE, now=NOW)
    assert found is None if reason is None else reason in (found or "")
