"""A program that asks a facilitator and a node whose answers nest endlessly, and prints the outcomes."""

from datetime import UTC, datetime

import httpx

from campus.features.payments.chain import Chain, Transfer
from campus.features.payments.facilitators import LazyFacilitators
from campus.features.payments.feature import FacilitatorTable
from campus.features.payments.payment import Payment, Sale
from tests import patient
from twins import Problem

NETWORK, ADDRESS, NONCE = "eip155:8453", "0x" + "12" * 20, "0x" + "34" * 32
REQUIREMENTS = {"scheme": "exact", "network": NETWORK, "asset": ADDRESS, "amount": "1", "payTo": ADDRESS, "maxTimeoutSeconds": 300}
PAYMENT = Payment(2, NETWORK, ADDRESS, ADDRESS, 1, 0, 1, NONCE, b"", {"authorization": {"from": ADDRESS, "to": ADDRESS}})
SALE = Sale("cve", "brief", "http", "https://campus.example/", ADDRESS, 1, REQUIREMENTS, lambda code, reason: Problem(402, code, reason))


async def main() -> None:
    endless = httpx.MockTransport(lambda _: httpx.Response(200, text="[" * 100_000))
    async with patient.AsyncClient(transport=endless) as client:
        facilitator = await LazyFacilitators([(FacilitatorTable(url="https://facilitator.example"), client)], NETWORK).loaded()
        verdict, outcome = await facilitator.verify(PAYMENT, SALE), await facilitator.settle(facilitator.signed(PAYMENT, SALE))
        chain = Chain(client, "https://node.example")
        found = await chain.outcome_of(Transfer(ADDRESS, ADDRESS, ADDRESS, 1, NONCE, 1), since=datetime.now(UTC), now=datetime.now(UTC))
        print(verdict.reachable, outcome.state, found.state)
