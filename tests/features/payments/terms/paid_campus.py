"""A campus with one building, `stall`, that is paid on a real chain; a payer, and the ways to call it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from features.payments.terms.samples import make_seller

from campus import Building
from campus.features.chain import PAYMENT, Chain, Facilitator, Payer, headers_of, new_wallet, open_chain, open_facilitator, terms_of
from campus.testing import ORIGIN, Clock, TestCampus, open_campus
from tests import patient

DAY = {"day": "2026-01-02"}
PATH = "/v1/stall/text/2026-01-02"
DOLLAR = 1_000_000


class PaidCampus:
    """A seller on a chain, whoever is paid there, and who pays."""

    def __init__(self, campus: TestCampus, chain: Chain, facilitator: Facilitator, payer: Payer, payee: str, *, before: int = 0) -> None:
        self.campus, self.chain, self.facilitator, self.payer, self.payee = campus, chain, facilitator, payer, payee
        self.before = before

    @asynccontextmanager
    async def as_new(self, address: str) -> AsyncIterator["PaidCampus"]:
        """The same, called from this address, with another payer, and with a facilitator that was not called yet."""
        self.facilitator.calls.clear()
        self.facilitator.bodies.clear()
        wallet, before = new_wallet(), await self.chain.balance(self.payee)
        await self.chain.mint(wallet.address, 10 * DOLLAR)
        async with called_from(self.campus, address) as campus:
            yield PaidCampus(campus, self.chain, self.facilitator, Payer(wallet), self.payee, before=before)
        self.facilitator.faults.clear()

    async def earned(self) -> int:
        return await self.chain.balance(self.payee) - self.before

    def paying(self) -> httpx.AsyncClient:
        return self.payer.http(ORIGIN, transport=httpx.ASGITransport(self.campus.app))

    def mcp(self) -> Client[Any]:
        return Client(StreamableHttpTransport(f"{ORIGIN}/stall/mcp", httpx_client_factory=self.campus._client))

    async def terms(self, path: str = PATH) -> dict[str, Any]:
        return terms_of(await self.campus.http.get(path))

    async def offer(self, frame: str, payment: Any) -> tuple[int, dict[str, Any]]:
        if frame == "http":
            answer = await self.campus.http.get(PATH, headers=headers_of(payment))
            return answer.status_code, answer.json()
        async with self.mcp() as client:
            result = await client.call_tool("text_of", DAY, meta={PAYMENT: payment}, raise_on_error=False)
        said = result.structured_content or {}
        return (said["status"] if result.is_error else 200), said


@asynccontextmanager
async def called_from(campus: TestCampus, address: str) -> AsyncIterator[TestCampus]:
    """The campus, called from this address by whoever names no other."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        named = scope["client"] if scope["client"][0] != "127.0.0.1" else (address, 4000)
        await campus.app({**scope, "client": named}, receive, send)

    async with patient.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as http:
        yield replace(campus, app=app, http=http)


@asynccontextmanager
async def open_paid_campus(
    seller: Building | None = None, *, lower_case: bool = False, direct_mcp: str = "on", clock: Clock | None = None, **more: Any
) -> AsyncIterator[PaidCampus]:
    payer, payee = Payer(new_wallet()), new_wallet().address
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 10 * DOLLAR)
        tables = {
            "payments": facilitator.table(payee.lower() if lower_case else payee) | more,
            "server": {"public_url": ORIGIN, "direct_mcp": direct_mcp},
        }
        async with open_campus(settings={"grants": ["keys"]}, tables=tables, clock=clock, stall=seller or make_seller()) as campus:
            yield PaidCampus(campus, chain, facilitator, payer, payee)
