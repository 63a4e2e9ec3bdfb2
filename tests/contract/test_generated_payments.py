"""A client generated from the served document calls freely, with a key and for a payment, and reads that it must not pay again."""

import importlib
import secrets
import sys
from datetime import date
from pathlib import Path

import httpx
import pytest
from anyio.to_thread import run_sync
from contract.test_generated_client import generate
from features.payments.terms.paid_campus import open_paid_campus
from features.payments.terms.samples import SENTINEL
from patience import patience

from campus.features.chain import headers_of, receipt_of, terms_of
from campus.testing import ORIGIN

pytestmark = pytest.mark.anyio
PACKAGE = "generated_stall"
DAY = date(2026, 1, 2)


async def test_a_generated_client_buys_by_key_and_by_payment_and_reads_that_it_must_not_pay_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    async with open_paid_campus(chain_wait_seconds=1) as paid_campus:
        document = (await paid_campus.campus.http.get("/v1/openapi.json")).json()
        await run_sync(generate, tmp_path, {PACKAGE: document})
        package, models = (importlib.import_module(name) for name in (PACKAGE, f"{PACKAGE}.models"))
        sample, text_of = (importlib.import_module(f"{PACKAGE}.api.stall.stall_{tool}").asyncio_detailed for tool in ("sample", "text_of"))
        options = {"timeout": httpx.Timeout(patience(60)), "httpx_args": {"transport": httpx.ASGITransport(paid_campus.campus.app)}}
        client = package.Client(ORIGIN, **options)
        with_key = package.AuthenticatedClient(ORIGIN, await paid_campus.campus.key("stall"), **options)

        assert (await sample(client=client)).parsed.text == "free"
        assert (await text_of(DAY, client=with_key)).parsed.text == SENTINEL
        assert await paid_campus.earned() == 0

        unpaid = await text_of(DAY, client=client)
        terms = unpaid.parsed
        assert isinstance(terms, models.PaymentRequired)
        assert (terms.code, terms.accepts[0].max_amount_required, terms.accepts[0].pay_to) == (
            "access_required",
            "20000",
            paid_campus.payee,
        )
        assert [way.per_call for way in terms.unlock if way.per_call] == ["0.02"]

        def signed() -> str:
            """A payment as x402's library signs it, for the header that the document declares."""
            return headers_of(paid_campus.payer.payload(terms_of(unpaid)))["PAYMENT-SIGNATURE"]

        call = {"client": client, "payment_signature": signed(), "idempotency_key": secrets.token_urlsafe(24)}
        bought, again = await text_of(DAY, **call), await text_of(DAY, **call)
        assert (bought.parsed.text, receipt_of(bought)["success"]) == (SENTINEL, True)
        assert (again.content, receipt_of(again)) == (bought.content, receipt_of(bought))
        used = await text_of(DAY, **{**call, "idempotency_key": secrets.token_urlsafe(24)})
        assert isinstance(used.parsed, models.Problem)
        assert (used.status_code, used.parsed.code) == (409, "payment_already_used")
        assert await paid_campus.earned() == 20_000

        paid_campus.facilitator.faults.unsent = {"success": False, "errorReason": "transaction_failed", "transaction": "", "network": ""}
        unknown = await text_of(DAY, client=client, payment_signature=signed())
        assert isinstance(unknown.parsed, models.Problem)
        assert (unknown.status_code, unknown.parsed.code, unknown.headers["retry-after"]) == (409, "payment_in_flight", "5")
        assert "A new payment would be charged too" in unknown.parsed.detail
