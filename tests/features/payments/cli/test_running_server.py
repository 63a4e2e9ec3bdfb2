"""`campus ledger` next to a running server: it agrees with the chain, and reports what the chain does not show."""

import json
import secrets
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import pytest
from patience import patience
from serving import Served, serving, write_config
from x402.http.clients.httpx import PaymentError

from campus.features.chain import Chain, Facilitator, Payer, new_wallet, open_chain, open_facilitator, open_relay
from tests import patient

pytestmark = pytest.mark.anyio
PAY_TO = "0x" + "22" * 20
DOLLAR = 1_000_000
CONFIG = """
openapi = "checkout"
[payments]
network = "eip155:8453"
pay_to = "{pay_to}"
facilitators = ["{facilitator}"]
rpc_url = "{rpc}"
[products.dice]
scope = "dice"
price = "0.50"
term = "30 days"
[buildings.checkout]
grants = ["keys"]
"""

SMALL = """
[buildings.slow]
server = "features.payments.slow_tool:mcp"
tools = { "*" = { price = "0.02" } }
"""
"""A tool whose calls need no proof before they are answered."""
FALSE = {"success": True, "transaction": "0x" + "77" * 32, "network": "eip155:8453"}


class Ran(Protocol):
    code: int
    out: str
    err: str


Command = Callable[..., Ran]
Run = Callable[..., Awaitable[Ran]]


@pytest.fixture
async def chain() -> AsyncIterator[Chain]:
    async with open_chain() as chain:
        yield chain


@pytest.fixture
async def facilitator(chain: Chain) -> AsyncIterator[Facilitator]:
    async with open_facilitator(chain) as facilitator:
        yield facilitator


@pytest.fixture
def run(command: Command, tmp_path: Path) -> Run:
    async def ran(words: tuple[str, ...], *, folder: Path = tmp_path) -> Ran:
        return await anyio.to_thread.run_sync(lambda: command(*words, "--config", str(folder / "campus.toml")))

    return ran


async def buy(served: Served, payer: Payer) -> str:
    async with payer.http(served.url, timeout=patience(60)) as client:
        answer = await client.post("/v1/checkout/keys", json={"product": "dice"}, headers={"Idempotency-Key": secrets.token_hex(16)})
    assert answer.status_code == 200, answer.text
    key: str = answer.json()["key"]
    return key


def change(folder: Path, statement: str, *values: str) -> None:
    with sqlite3.connect(folder / "data" / "campus.db") as database:
        database.execute(statement, values)
    database.close()


async def test_the_ledger_agrees_with_the_chain_until_somebody_changes_it(
    tmp_path: Path, chain: Chain, facilitator: Facilitator, run: Run
) -> None:
    payer = Payer(new_wallet())
    await chain.mint(payer.wallet.address, 2 * DOLLAR)
    text = CONFIG.format(pay_to=PAY_TO, facilitator=facilitator.url, rpc=chain.rpc_url)
    with serving(tmp_path, text) as served:
        keys = [await buy(served, payer) for _ in range(2)]
        assert all(key.startswith("campus_live_") for key in keys)
        sums = json.loads((await run(("ledger", "sum", "--json"))).out)
        assert [(row["tool"], row["payments"], row["amount"]) for row in sums] == [("buy_key", 2, DOLLAR)]
        assert await chain.balance(PAY_TO) == DOLLAR
        listed = (await run(("ledger", "list", "--json"))).out
        settled = [row for row in json.loads(listed) if row["event"] == "settled"]
        moved = await chain.transfers(sender=payer.wallet.address)
        assert [row["transaction"] for row in settled] == [one.transaction for one in moved]
        assert all(key not in listed for key in keys)
        well = await run(("ledger", "reconcile"))
        assert (well.code, well.out) == (0, "all is well\n")
    funnel = json.loads((await run(("ledger", "funnel", "--json"))).out)
    assert [(row["shown"], row["paid"], row["conversion"], row["payers"]) for row in funnel] == [(2, 2, 1.0, 1)]
    statement = 'UPDATE payments SET "transaction" = ? WHERE id = ?'
    change(tmp_path, statement, settled[1]["transaction"], settled[0]["payment_id"])
    reconciled = await run(("ledger", "reconcile", "--json"))
    assert reconciled.code == 1
    payment, first = settled[0]["payment_id"], moved[0].transaction
    found = [(row["payment"], row["is"], row["transaction"], row["amount"]) for row in json.loads(reconciled.out)]
    assert found == [(payment, "not on the chain", settled[1]["transaction"], DOLLAR // 2), (payment, "unclaimed", first, DOLLAR // 2)]
    assert [(row["payment"], row["was"], row["is"]) for row in json.loads((await run(("ledger", "reconcile", "--json"))).out)] == [
        (payment, "unproven", "settled")
    ], "the transaction that paid it is found by its nonce"


async def test_reconcile_concludes_an_unknown_payment_and_its_buyer_gets_the_key(
    tmp_path: Path, chain: Chain, facilitator: Facilitator, run: Run
) -> None:
    payer = Payer(new_wallet())
    await chain.mint(payer.wallet.address, DOLLAR)
    text = CONFIG.format(pay_to=PAY_TO, facilitator=facilitator.url, rpc=chain.rpc_url)
    with serving(tmp_path, text) as served, facilitator.hold("settled") as hold:
        async with anyio.create_task_group() as tasks:

            async def lost() -> None:
                with pytest.raises(PaymentError):
                    await buy(served, payer)

            tasks.start_soon(lost)
            await hold.reached(seconds=patience(30))
            served.process.kill()
    assert await chain.balance(PAY_TO) == DOLLAR // 2
    assert json.loads((await run(("key", "list", "--json"))).out) == []
    change(tmp_path, "UPDATE payments SET lease_until = '2026-01-01 00:00:00.000000'")
    reconciled = await run(("ledger", "reconcile", "--json"))
    assert (reconciled.code, [(row["was"], row["is"]) for row in json.loads(reconciled.out)]) == (0, [("settling", "settled")])
    keys = json.loads((await run(("key", "list", "--json"))).out)
    assert [(row["product"], row["state"]) for row in keys] == [("dice", "valid")]


async def test_a_payment_that_stays_unproven_is_reported_and_makes_calls_wait_until_the_operator_accepts_it(
    tmp_path: Path, chain: Chain, facilitator: Facilitator, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_TOOL_FOLDER", str(tmp_path))
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "SLOW_TOOL_FOLDER": str(tmp_path)}
    payer = Payer(new_wallet())
    await chain.mint(payer.wallet.address, DOLLAR)
    facilitator.faults.unsent = FALSE
    async with open_relay(chain) as relay:
        text = CONFIG.format(pay_to=PAY_TO, facilitator=facilitator.url, rpc=relay.url) + SMALL
        with serving(tmp_path, text, environ=environ) as served:

            async def status_of_call(number: int) -> int:
                relay.faults.down = True  # a small call does not wait for a node that is down
                async with payer.http(served.url, timeout=patience(60)) as client:
                    answer = await client.get(f"/v1/slow/count?number={number}")
                relay.faults.down = False
                return answer.status_code

            async def reported() -> tuple[str, str, str]:
                """What the public /readyz, the operator's and `campus check` say of payments."""
                await anyio.sleep(1.1)  # the readiness is kept for a second
                public = patient.get(f"{served.url}/readyz").json()["checks"]["payments"]
                operators = patient.get(f"{served.admin}/readyz").json()["checks"]["payments"]
                checked = json.loads((await run(("check", "--json"))).out)
                return public, " ".join(operators), " ".join(row["problem"] for row in checked if row["building"] == "[payments]")

            assert await status_of_call(1) == 200
            change(tmp_path, "UPDATE payments SET unproven_since = '2026-01-01 00:00:00.000000'")
            await run(("ledger", "reconcile"))
            public, *reconciled = await reported()
            assert public == "failed"
            [payment] = [row for row in json.loads((await run(("ledger", "list", "--json"))).out) if row["event"] == "settled"]
            for text in reconciled:
                assert payment["payment_id"] in text
                assert "campus ledger accept-unproven" in text
            assert await status_of_call(2) == 409
            accepted = json.loads((await run(("ledger", "accept-unproven", "--json"))).out)
            assert [(row["payment"], row["was"], row["is"], row["amount"]) for row in accepted] == [
                (payment["payment_id"], "settled", "accepted", 20_000)
            ]
            assert "accept-unproven" not in " ".join(await reported())
            assert await status_of_call(3) == 200
    assert await chain.balance(PAY_TO) == 0


async def test_without_payments_there_is_nothing_to_reconcile(tmp_path: Path, run: Run) -> None:
    write_config(tmp_path, 'openapi = "gateway"\n[buildings.gateway]\npath = "/"\n', port=8000)
    refused = await run(("ledger", "reconcile"))
    assert refused.code == 2
    assert "campus.toml has no table [payments]" in refused.err
    assert refused.err.count("\n") == 1


async def test_a_chain_that_does_not_answer_is_reported_in_a_sentence(tmp_path: Path, facilitator: Facilitator, run: Run) -> None:
    write_config(tmp_path, CONFIG.format(pay_to=PAY_TO, facilitator=facilitator.url, rpc="http://127.0.0.1:9"), port=8000)
    refused = await run(("ledger", "reconcile"))
    assert refused.code == 2
    assert refused.err.startswith("campus: ")
    assert refused.err.count("\n") == 1


async def test_income_that_no_payment_claims_is_listed_to_the_atomic_unit(
    tmp_path: Path, chain: Chain, facilitator: Facilitator, run: Run
) -> None:
    wallet, pay_to = new_wallet(), new_wallet().address
    await chain.mint(wallet.address, DOLLAR)
    text = CONFIG.format(pay_to=pay_to, facilitator=facilitator.url, rpc=chain.rpc_url)
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
    with serving(tmp_path / "other", text) as other:
        await buy(other, Payer(wallet))
    await chain.mint(pay_to, 3)
    write_config(tmp_path / "one", text, port=8000)
    listed = await run(("ledger", "reconcile", "--json"), folder=tmp_path / "one")
    [paid, sent] = sorted(json.loads(listed.out), key=lambda row: -row["amount"])
    assert (listed.code, paid["is"], paid["amount"], paid["usd"], paid["payer"]) == (
        1,
        "unclaimed",
        DOLLAR // 2,
        "0.50",
        wallet.address.lower(),
    )
    assert paid["transaction"] == (await chain.transfers(sender=wallet.address))[-1].transaction
    assert "another database" in paid["reason"]
    assert paid["at"].endswith("Z")
    assert (sent["is"], sent["amount"], sent["payment"]) == ("unclaimed", 3, None)
    checked = json.loads((await run(("check", "--json"), folder=tmp_path / "one")).out)
    [found] = [row["problem"] for row in checked if row["building"] == "[payments]"]
    assert "no payment of this ledger claims (2 on eip155:8453, $0.500003)" in found
    claimed = json.loads((await run(("check", "--json"), folder=tmp_path / "other")).out)
    assert ["claims (1 on eip155:8453, $0.000003)" in row["problem"] for row in claimed if row["building"] == "[payments]"] == [True]
