"""Payments that buy nothing cost the facilitator little: signatures are checked here, and refusals have a budget over time."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from features.payments.terms.paid_campus import PATH, PaidCampus
from patience import patience

from campus.features.chain import Payer, headers_of, new_wallet
from campus.features.payments.queue import QueueLimits
from campus.testing import ORIGIN
from tests import patient

pytestmark = pytest.mark.anyio
LIMITS = QueueLimits()


async def sent_from(paid_campus: PaidCampus, address: str, payment: Mapping[str, Any]) -> tuple[int, str | None]:
    transport = httpx.ASGITransport(paid_campus.campus.app, client=(address, 4000))
    async with patient.AsyncClient(transport=transport, base_url=ORIGIN, timeout=patience(120)) as client:
        answer = await client.get(PATH, headers=headers_of(payment))
    return answer.status_code, answer.json().get("code")


async def test_random_signatures_reach_no_facilitator_and_their_address_is_soon_not_looked_at(paid_campus: PaidCampus) -> None:
    terms = await paid_campus.terms()
    answers = []
    for number in range(LIMITS.worthless_per_client + 5):
        signature = "0x" + f"{number + 1:02x}" * 64 + "1b"
        answers.append(await sent_from(paid_campus, "192.0.2.66", paid_campus.payer.payload(terms, signature=signature)))
    assert answers[: LIMITS.worthless_per_client] == [(402, "payment_refused")] * LIMITS.worthless_per_client
    assert answers[-1] == (429, "too_many_worthless_payments")
    assert paid_campus.facilitator.outcomes("verify") == []
    for frame in ("http", "mcp"):
        status, said = await paid_campus.offer(frame, paid_campus.payer.payload(terms, signature="0x" + "11" * 65))
        assert (status, said["code"]) == (402, "payment_refused")
        assert "signature" in said["detail"]
    honest = paid_campus.payer.payload(terms)
    assert (await paid_campus.offer("mcp", honest))[0] == 200, "its wallet was named by a stranger, and signed none of these"


async def test_a_wallet_without_funds_has_a_budget_wherever_it_pays_from(paid_campus: PaidCampus) -> None:
    terms, nobody = await paid_campus.terms(), Payer(new_wallet())
    answers = [await sent_from(paid_campus, f"192.0.2.{number}", nobody.payload(terms)) for number in range(LIMITS.worthless_per_payer + 2)]
    assert answers[-1] == (429, "too_many_worthless_payments")
    assert len(paid_campus.facilitator.outcomes("verify")) == LIMITS.worthless_per_payer


async def test_what_only_a_contract_can_check_is_passed_on(paid_campus: PaidCampus) -> None:
    terms, contract = await paid_campus.terms(), paid_campus.chain.asset
    of_one_owner = paid_campus.payer.payload(terms, sender=contract, signature="0x" + "11" * 64 + "1b")
    of_many = paid_campus.payer.payload(terms, signature="0x" + "11" * 130)
    for number, payment in enumerate((of_one_owner, of_many), 1):
        assert (await paid_campus.offer("http", payment))[0] == 402
        assert len(paid_campus.facilitator.outcomes("verify")) == number
