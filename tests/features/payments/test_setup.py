"""Payments as a campus opens them: the ledger's counts, the checks, and what is loaded when."""

from pathlib import Path
from typing import Any

import pytest
from features.payments.seller import Clock, Seller, settings
from patience import patience
from pydantic import SecretStr
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from campus.errors import StorageFault
from campus.features.chain import Chain, open_facilitator
from campus.features.payments.feature import FacilitatorTable
from campus.features.payments.ledger import Ledger
from campus.features.payments.setup import open_payments
from campus.features.payments.tables import LedgerRow
from tests import forkserver

pytestmark = pytest.mark.anyio


async def test_offers_are_written_once_with_their_number(seller: Seller) -> None:
    ledger = seller.payments.ledger
    for _ in range(1000):
        ledger.count("offered", "cve", "brief", "http")
    ledger.count("offered", "cve", "brief", "mcp")
    assert len(ledger._counts.waiting) == 2
    await ledger.flush()
    await ledger.flush()
    assert [(row.event, row.frame, row.quantity) for row in await seller.ledger()] == [("offered", "http", 1000), ("offered", "mcp", 1)]


async def test_what_was_counted_is_written_when_payments_close(seller: Seller) -> None:
    opened = open_payments(settings(seller.chain, seller.facilitator.url), seller.storage, seller.bought, now=Clock())

    async def fail_while_open() -> None:
        async with opened as payments:
            payments.ledger.count("offered", "cve", "brief", "http")
            raise RuntimeError("as it is")

    with pytest.raises(RuntimeError, match="as it is"):
        await fail_while_open()
    assert [row.event for row in await seller.ledger()] == ["offered"]


async def test_counts_survive_a_flush_that_fails(seller: Seller) -> None:
    class Away:
        def write(self) -> Any:
            raise RuntimeError("away")

    payment = seller.pay()
    await seller.sell(payment)
    row = await seller.row(payment)
    ledger = Ledger(Away(), now=Clock())  # type: ignore[arg-type]  # only what is asked of it
    for _ in range(2):
        ledger.count("offered", "cve", "brief", "http")
        ledger.replayed(row, "mcp")
        with pytest.raises(RuntimeError):
            await ledger.flush()
    assert {counted.event: number for counted, number in ledger._counts.waiting.items()} == {"offered": 2, "replayed": 2}


@pytest.mark.parametrize("change", ["UPDATE payments_ledger SET amount = 1", "DELETE FROM payments_ledger"])
@pytest.mark.both_databases
async def test_the_ledger_only_grows(seller: Seller, change: str) -> None:
    await seller.sell(seller.pay())
    before = await seller.ledger()
    with pytest.raises((DBAPIError, StorageFault), match="the ledger only grows"):
        async with seller.storage.write() as session:
            await (await session.connection()).execute(text(change))
    assert await seller.ledger() == before


async def test_a_ledgers_row_says_who_paid_what_for_which_call_and_when(seller: Seller) -> None:
    payment = seller.pay()
    sold = await seller.sell(payment)
    row: LedgerRow = (await seller.ledger())[-1]
    assert (row.event, row.building, row.tool, row.frame) == ("settled", "cve", "brief", "http")
    assert (row.network, row.asset, row.payer, row.amount) == ("eip155:8453", seller.chain.asset.lower(), payment.payer, 20_000)
    assert (row.transaction, row.payment_id) == (sold.receipt["transaction"], (await seller.row(payment)).id)
    assert abs((seller.clock() - row.at).total_seconds()) < 60


async def test_a_good_configuration_has_no_findings(seller: Seller) -> None:
    assert await seller.payments.check() == []


async def test_the_check_says_what_is_wrong(seller: Seller) -> None:
    async def found(**changes: Any) -> list[str]:
        wrong = settings(seller.chain, seller.facilitator.url).model_copy(update=changes)
        async with open_payments(wrong, seller.storage, seller.bought, now=Clock()) as payments:
            return await payments.check()

    nowhere = "http://127.0.0.1:9"
    for url in (nowhere, seller.chain.rpc_url):
        [said] = await found(facilitators=(FacilitatorTable(url=url),))
        assert said.startswith(f"the facilitator at {FacilitatorTable(url=url).host} ")
        assert "facilitators" in said
    assert "rpc_url" in (await found(rpc_url=nowhere))[0]
    assert await found(network="eip155:84532") == [
        f"the facilitator at {FacilitatorTable(url=seller.facilitator.url).host} does not serve eip155:84532; it serves eip155:8453",
        "[payments] rpc_url is a node of eip155:8453, and network is eip155:84532",
    ]


async def test_the_operators_token_goes_to_the_facilitator(chain: Chain, seller: Seller) -> None:
    async with open_facilitator(chain, token="letmein") as guarded:
        for token, is_valid in (("letmein", True), ("wrong", False), (None, False)):
            around = settings(chain, guarded.url, pay_to=seller.pay_to)
            if token is not None:
                around = settings(chain, {"url": guarded.url, "auth": "bearer"}, pay_to=seller.pay_to)
            secrets = {"CAMPUS_PAYMENTS_FACILITATOR_TOKEN": SecretStr(token or "")}
            async with open_payments(around, seller.storage, seller.bought, now=Clock(), secrets=secrets) as payments:
                facilitator = await next(iter(payments.ways.values())).facilitators.loaded()
                assert (await facilitator.verify(seller.pay(), seller.sale())).valid is is_valid
                assert (await payments.check() == []) is is_valid


def test_endlessly_nested_answers_do_not_end_the_process() -> None:
    program = "import anyio\nfrom features.payments.deep_answers import main\nanyio.run(main)"
    environ = {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = forkserver.shared().run(program, environ=environ, imports=forkserver.PAYMENTS, timeout=patience(60))
    assert (ended.returncode, ended.stdout) == (0, "False unknown unknown\n"), ended.stderr
