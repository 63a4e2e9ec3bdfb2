"""Two networks, each with a chain, a wallet and a facilitator of its own: a payment is charged, proven and audited where it says."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import httpx
import pytest
from features.payments.terms.samples import make_seller
from pydantic import SecretStr

from campus.errors import ConfigError
from campus.features.chain import Chain, Facilitator, Payer, headers_of, new_wallet, open_chain, open_facilitator, receipt_of, terms_of
from campus.features.payments.feature import PaymentsTable
from campus.features.payments.setup import Payments
from campus.features.payments.ways import ways_of
from campus.testing import ORIGIN, Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
BASE, ETHEREUM = "eip155:8453", "eip155:1"
COIN_OF_ETHEREUM = "0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48"
PATH, PRICE = "/v1/stall/text/2026-01-02", 20_000


@dataclass
class Place:
    """A network with who is paid there."""

    chain: Chain
    facilitator: Facilitator
    payee: str

    async def earned(self) -> int:
        return await self.chain.balance(self.payee)


@dataclass
class Shop:
    campus: TestCampus
    clock: Clock
    payer: Payer
    places: list[Place]

    @property
    def payments(self) -> Payments:
        found: Payments = self.campus.service.sites["payments"].state
        return found

    async def terms(self, network: str | None = None) -> dict[str, Any]:
        """Those of a call, with the one way that a payer chose."""
        terms = terms_of(await self.campus.http.get(PATH))
        return terms | {"accepts": [one for one in terms["accepts"] if network in (None, one["network"])]}

    async def pay(self, on: str, **changes: Any) -> httpx.Response:
        return await self.campus.http.get(PATH, headers=headers_of(self.payer.payload(await self.terms(on), **changes)))


@asynccontextmanager
async def open_shop() -> AsyncIterator[Shop]:
    payer, clock = Payer(new_wallet()), Clock()
    async with AsyncExitStack() as stack:
        places = []
        for chain_id, asset in ((8453, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"), (1, COIN_OF_ETHEREUM)):
            chain = await stack.enter_async_context(open_chain(chain_id, asset))
            await chain.mint(payer.wallet.address, 1_000_000)
            places.append(Place(chain, await stack.enter_async_context(open_facilitator(chain)), new_wallet().address))
        first, further = (place.facilitator.table(place.payee) for place in places)
        tables = {
            "payments": first | {"networks": [further], "prove_above": "0", "chain_wait_seconds": 1},
            "server": {"public_url": ORIGIN},
        }
        campus = await stack.enter_async_context(
            open_campus(settings={"grants": ["keys"]}, tables=tables, clock=clock, stall=make_seller())
        )
        yield Shop(campus, clock, payer, places)


async def test_one_402_has_every_network_and_each_payment_is_charged_where_it_says() -> None:
    async with open_shop() as shop:
        refused = await shop.campus.http.get(PATH)
        assert [(one["network"], one["payTo"]) for one in terms_of(refused)["accepts"]] == [
            (network, place.payee) for network, place in zip((BASE, ETHEREUM), shop.places, strict=True)
        ]
        assert [one["network"] for one in refused.json()["accepts"]] == ["base", "ethereum"], "x402 v1 has names of its own"
        assert terms_of(refused)["accepts"][1]["asset"] == COIN_OF_ETHEREUM
        for place in reversed(shop.places):
            answer = await shop.pay(place.chain.network)
            assert (answer.status_code, receipt_of(answer)["network"]) == (200, place.chain.network), answer.text
            assert (await place.chain.transfers(receiver=place.payee))[0].transaction == receipt_of(answer)["transaction"]
        assert [await place.earned() for place in shop.places] == [PRICE, PRICE]
        signed = shop.payer.payload(await shop.terms(ETHEREUM))["payload"]
        payment = {"x402Version": 1, "scheme": "exact", "network": "ethereum", "payload": signed}
        assert (await shop.campus.http.get(PATH, headers=headers_of(payment))).status_code == 200
        async with shop.campus.mcp() as client:
            assert (await shop.payer.call_mcp(client, "text_of", {"day": "2026-01-02"})).is_error is False
        assert [await place.earned() for place in shop.places] == [2 * PRICE, 2 * PRICE]
        assert await shop.payments.check() == []
        since = datetime.now(UTC) - timedelta(days=1)
        found = await shop.payments.compare(since)
        assert (found.missing, found.unclaimed) == ((), ())
        await shop.places[1].chain.mint(shop.places[1].payee, 7)
        [stray] = (await shop.payments.compare(since)).unclaimed
        assert (stray.network, stray.amount) == (ETHEREUM, 7)


async def test_a_payment_cannot_name_a_network_that_is_not_offered_nor_be_used_on_another() -> None:
    async with open_shop() as shop:
        foreign = await shop.pay(BASE, network="eip155:137")
        assert (foreign.status_code, foreign.json()["code"]) == (402, "payment_refused")
        assert f"pay on {BASE} or {ETHEREUM}" in foreign.json()["detail"]
        payment = shop.payer.payload(await shop.terms(BASE))
        on_ethereum = (await shop.terms(ETHEREUM))["accepts"][0]
        for accepted in (payment["accepted"] | {"network": ETHEREUM}, on_ethereum):
            moved = await shop.campus.http.get(PATH, headers=headers_of(payment | {"accepted": accepted}))
            assert (moved.status_code, moved.json()["code"]) == (402, "payment_refused"), "it was signed for another chain"
        assert [await place.earned() for place in shop.places] == [0, 0]
        assert [place.facilitator.calls for place in shop.places] == [[], []]


async def test_each_network_is_reconciled_by_its_own_chain_while_the_other_is_away() -> None:
    async with open_shop() as shop:
        on_ethereum = shop.places[1]
        for place in shop.places:
            place.facilitator.faults.settle_status_before = 500
        payments = {network: headers_of(shop.payer.payload(await shop.terms(network))) for network in (BASE, ETHEREUM)}

        async def die(headers: dict[str, str]) -> None:
            assert (await shop.campus.http.get(PATH, headers=headers)).json()["code"] == "payment_in_flight"

        async with anyio.create_task_group() as calls:
            for headers in payments.values():
                calls.start_soon(die, headers)
        on_ethereum.facilitator.faults.clear()
        shop.clock.move(timedelta(minutes=1))
        after = {one.transaction is not None for one in await shop.payments.resolve()}
        assert after == {True, False}
        assert [await place.earned() for place in shop.places] == [0, PRICE]
        again = await shop.campus.http.get(PATH, headers=payments[ETHEREUM])
        assert (again.status_code, receipt_of(again)["network"]) == (200, ETHEREUM)


WRITTEN: dict[str, Any] = {
    "network": BASE,
    "pay_to": "0x" + "1" * 40,
    "facilitators": ["https://f.example"],
    "rpc_url": "https://n.example",
}


def test_a_further_network_is_as_the_first_where_it_says_nothing_and_its_node_may_be_a_secret() -> None:
    settings = PaymentsTable(**WRITTEN, networks=[{"network": ETHEREUM, "facilitators": [{"url": "https://g.example", "auth": "bearer"}]}])
    with pytest.raises(ConfigError, match="CAMPUS_PAYMENTS_RPC_URL_1"):
        ways_of(settings, {})
    [first, second] = ways_of(settings, {"CAMPUS_PAYMENTS_RPC_URL_1": SecretStr("https://secret.example/key")})
    assert (first.rpc_url, second.rpc_url, second.pay_to) == ("https://n.example", "https://secret.example/key", first.pay_to)
    assert [one.url for way in (first, second) for one in way.facilitators] == ["https://f.example", "https://g.example"]
    with pytest.raises(ValueError, match="is there twice"):
        PaymentsTable(**WRITTEN, networks=[{"network": BASE, "rpc_url": "https://n.example"}])
