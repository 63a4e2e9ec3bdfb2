"""Worthless payments of one address before a slow facilitator do not delay an honest buyer at another address."""

from collections.abc import Mapping
from typing import Any

import anyio
import httpx
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from features.payments.terms.paid_campus import DAY, PATH, PaidCampus
from patience import patience

from campus.features.chain import PAYMENT, Payer, headers_of, new_wallet
from campus.features.payments.facilitator import X402Facilitator
from campus.testing import ORIGIN
from tests import patient

pytestmark = pytest.mark.anyio
WORTHLESS = 64
AT_ONCE = 16
"""How many payments of one address are checked at once."""


def at(paid_campus: PaidCampus, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(paid_campus.campus.app, client=(address, 4000))
    return patient.AsyncClient(transport=transport, base_url=ORIGIN, timeout=patience(120))


async def pay(paid_campus: PaidCampus, frame: str, payment: Mapping[str, Any]) -> tuple[int, Any]:
    if frame == "http":
        answer = await paid_campus.campus.http.get(PATH, headers=headers_of(payment), timeout=patience(120))
        return answer.status_code, answer.json()
    url = f"{ORIGIN}/stall/mcp"
    async with Client(StreamableHttpTransport(url, httpx_client_factory=paid_campus.campus._client)) as client:
        result = await client.call_tool("text_of", DAY, meta={PAYMENT: payment}, raise_on_error=False)
    said = result.structured_content or {}
    return (said["status"] if result.is_error else 200), said


async def test_while_worthless_payments_of_one_address_hang_in_the_facilitator_an_honest_buyer_is_served_over_both_frames(
    paid_campus: PaidCampus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # longer than a turn is waited for: otherwise the worthless payments would make room by timing out
    monkeypatch.setitem(X402Facilitator.__init__.__kwdefaults__, "verify_seconds", patience(60))
    async with at(paid_campus, "192.0.2.66") as stranger:
        terms, nobodies = await paid_campus.terms(), [Payer(new_wallet()) for _ in range(WORTHLESS)]
        answers: list[tuple[int, str]] = []

        async def flood(headers: Mapping[str, str]) -> None:
            answer = await stranger.get(PATH, headers=headers)
            answers.append((answer.status_code, answer.json()["code"]))

        with paid_campus.facilitator.hold("verify", payers=[nobody.wallet.address for nobody in nobodies]) as hold:
            async with anyio.create_task_group() as tasks:
                for nobody in nobodies:
                    tasks.start_soon(flood, headers_of(nobody.payload(terms)))
                await hold.reached(AT_ONCE, seconds=patience(120))
                for calls, frame in enumerate(("http", "mcp"), start=1):
                    status, said = await pay(paid_campus, frame, paid_campus.payer.payload(terms))
                    assert (status, said.get("code")) == (200, None)
                    assert await paid_campus.earned() == calls * 20_000
                hold.release()
        assert {status for status, _ in answers} <= {402, 429, 503}
        turned_away = {"payments_busy", "too_many_worthless_payments", "storage_unavailable"}  # the last where the machine is busy as well
        assert {code for _, code in answers} <= {"payment_refused", "payment_unverified", *turned_away}
        assert await paid_campus.earned() == 40_000
