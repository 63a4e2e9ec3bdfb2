"""The meaning of a facilitator's answer to a settlement: everything but a plausible success is unknown."""

from typing import Any

import pytest
from x402.schemas import SettleResponse

from campus.features.payments.facilitator import outcome_of

PAYER, TRANSACTION = "0x" + "Ab" * 20, "0x" + "Cd" * 32
PAYMENT = {"payer": PAYER.lower(), "network": "eip155:8453"}
SETTLED = {"success": True, "transaction": TRANSACTION, "network": "eip155:8453", "payer": PAYER}
FAILED = {"success": False, "transaction": "", "network": "eip155:8453"}


def meant(answer: dict[str, Any]) -> str:
    return outcome_of(SettleResponse.model_validate(answer), **PAYMENT).state


def test_a_reported_settlement_has_its_transaction_in_lower_case() -> None:
    outcome = outcome_of(SettleResponse.model_validate(SETTLED), **PAYMENT)
    assert (outcome.state, outcome.transaction) == ("settled", TRANSACTION.lower())


@pytest.mark.parametrize(
    "lie",
    [
        {"network": "eip155:1"},
        {"transaction": ""},
        {"transaction": "0x1234"},
        {"transaction": "0x" + "zz" * 32},
        {"payer": "0x" + "55" * 20},
    ],
    ids=str,
)
def test_a_reported_settlement_that_cannot_be_true_is_unknown(lie: dict[str, Any]) -> None:
    assert meant(SETTLED | lie) == "unknown"


@pytest.mark.parametrize(
    ("answer", "is_denied"),
    [
        ({}, False),
        ({"errorReason": "insufficient_funds"}, True),
        ({"errorReason": "invalid_exact_evm_payload_signature"}, True),
        ({"errorReason": "unsupported_scheme"}, False),
        ({"errorReason": "settlement_pending", "transaction": TRANSACTION}, False),
        ({"errorReason": "transaction_failed", "transaction": TRANSACTION}, False),
        ({"errorReason": "out of luck"}, False),
    ],
    ids=str,
)
def test_a_reported_refusal_is_unknown_whatever_its_reason_and_asked_again_unless_it_is_known_to_be_final(
    answer: dict[str, Any], is_denied: bool
) -> None:
    outcome = outcome_of(SettleResponse.model_validate(FAILED | answer), **PAYMENT)
    assert (outcome.state, outcome.is_denied) == ("unknown", is_denied)


def test_no_answer_is_unknown() -> None:
    assert outcome_of(None, **PAYMENT).state == "unknown"
