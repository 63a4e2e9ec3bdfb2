"""Reading the ledger, on both databases: sums, the funnel, periods in UTC days, and the operator's own wallets."""

from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from features.payments.seller import made_storage

from campus.features.payments import ledger
from campus.features.payments.ledger import Accounts, Funnel, Period, Revenue
from campus.features.payments.tables import LedgerRow
from campus.storage import Storage
from campus.storage.databases import Databases

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
BASE, SEPOLIA = "eip155:8453", "eip155:84532"
ALICE, BOB, OWN = "0xaa", "0xbb", "0xcc"
ALWAYS = Period()


@pytest.fixture
async def storage(storage_url: str) -> AsyncIterator[Storage]:
    async with Databases.open(storage_url) as databases:
        yield await made_storage(databases)


def at(day: int, hour: int = 12, minute: int = 0) -> datetime:
    return datetime(2026, 8, day, hour, minute, tzinfo=UTC)


def entry(event: str, moment: datetime, **more: Any) -> LedgerRow:
    return LedgerRow(**{"at": moment, "event": event, "building": "cve", "tool": "cve_verdict", "frame": "http", **more})


def settled(moment: datetime, payment_id: str, payer: str, amount: int = 5_000, **more: Any) -> LedgerRow:
    return entry("settled", moment, **{"payment_id": payment_id, "payer": payer, "amount": amount, "network": BASE, **more})


async def write(storage: Storage, *entries: LedgerRow) -> None:
    async with storage.write() as session:
        session.add_all(entries)


async def test_revenue_is_summed_by_day_tool_and_network(storage: Storage) -> None:
    await write(
        storage,
        settled(at(20, 0), "pay_1", ALICE),
        settled(at(20, 23, 59), "pay_2", BOB, frame="mcp"),
        settled(at(21, 0), "pay_3", ALICE),
        settled(at(21), "pay_4", ALICE, 20_000, tool="top_cves_today"),
        settled(at(21), "pay_5", ALICE, network=SEPOLIA),
        entry("admitted", at(21), payment_id="pay_6", payer=BOB, amount=7, network=BASE),
        entry("failed", at(21), payment_id="pay_6", payer=BOB, amount=7, network=BASE),
    )
    revenue = await Accounts(storage).revenue(ALWAYS)
    assert revenue == (
        Revenue("2026-08-20", "cve", "cve_verdict", BASE, 2, 10_000),
        Revenue("2026-08-21", "cve", "cve_verdict", BASE, 1, 5_000),
        Revenue("2026-08-21", "cve", "cve_verdict", SEPOLIA, 1, 5_000),
        Revenue("2026-08-21", "cve", "top_cves_today", BASE, 1, 20_000),
    )
    assert [one.usd for one in revenue] == ["0.01", "0.005", "0.005", "0.02"]


async def test_a_reversed_payment_is_subtracted_on_the_day_of_its_reversal(storage: Storage) -> None:
    reversal = entry("reversed", at(21), payment_id="pay_1", payer=ALICE, amount=5_000, network=BASE)
    await write(storage, settled(at(20), "pay_1", ALICE), settled(at(20), "pay_2", BOB, 7), settled(at(21), "pay_3", BOB, 9), reversal)
    revenue = await Accounts(storage).revenue(ALWAYS)
    assert [(one.day, one.payments, one.amount) for one in revenue] == [("2026-08-20", 2, 5_007), ("2026-08-21", 0, -4_991)]
    assert [one.usd for one in revenue] == ["0.005007", "-0.004991"]


async def test_a_sum_is_exact_beyond_what_a_float_or_32_bits_can_hold(storage: Storage) -> None:
    await write(storage, *(settled(at(20), f"pay_{number}", ALICE, 2**60 + 1) for number in range(5)))
    assert [one.amount for one in await Accounts(storage).revenue(ALWAYS)] == [5 * 2**60 + 5]


async def test_the_funnel_counts_terms_shown_payments_and_distinct_payers(storage: Storage) -> None:
    await write(
        storage,
        entry("offered", at(20), quantity=7),
        entry("offered", at(20, 13), quantity=3, frame="mcp"),
        entry("offered", at(20), quantity=4, tool="kev_fresh"),
        settled(at(20), "pay_1", ALICE),
        settled(at(20), "pay_2", ALICE),
        settled(at(20), "pay_3", BOB, frame="mcp"),
        entry("replayed", at(20), payment_id="pay_3", payer=BOB, amount=5_000),
        settled(at(21), "pay_4", BOB),
    )
    funnel = await Accounts(storage).funnel(ALWAYS)
    assert funnel == (
        Funnel("2026-08-20", "cve", "cve_verdict", shown=10, paid=3, payers=2),
        Funnel("2026-08-20", "cve", "kev_fresh", shown=4, paid=0, payers=0),
        Funnel("2026-08-21", "cve", "cve_verdict", shown=0, paid=1, payers=1),
    )
    assert [one.conversion for one in funnel] == [0.3, 0.0, None]


async def test_own_wallets_do_not_count_in_any_spelling(storage: Storage) -> None:
    await write(storage, entry("offered", at(20)), settled(at(20), "pay_1", OWN), settled(at(20), "pay_2", BOB))
    accounts = Accounts(storage, own_wallets=("0xCC",))
    assert [(one.payments, one.amount) for one in await accounts.revenue(ALWAYS)] == [(1, 5_000)]
    assert [(one.shown, one.paid, one.payers) for one in await accounts.funnel(ALWAYS)] == [(1, 1, 1)]
    assert [(one.payments, one.amount) for one in await Accounts(storage).revenue(ALWAYS)] == [(2, 10_000)]


async def test_a_period_includes_both_of_its_days_in_utc(storage: Storage) -> None:
    moments = (at(19, 23, 59), at(20, 0), at(20, 23, 59), at(21, 0), at(21, 23, 59), at(22, 0))
    await write(storage, *(settled(moment, f"pay_{number}", ALICE) for number, moment in enumerate(moments)))
    accounts = Accounts(storage)

    async def payments(since: int | None, until: int | None) -> list[str | None]:
        period = Period(date(2026, 8, since) if since else None, date(2026, 8, until) if until else None)
        found = [row.payment_id async for row in accounts.entries(period)]
        assert found == [row.payment_id for row in await accounts.last(100, period)]
        assert len(found) == sum(one.paid for one in await accounts.funnel(period))
        return found

    assert await payments(20, 21) == ["pay_1", "pay_2", "pay_3", "pay_4"]
    assert await payments(20, 20) == ["pay_1", "pay_2"]
    assert await payments(21, None) == ["pay_3", "pay_4", "pay_5"]
    assert await payments(None, 19) == ["pay_0"]
    assert len(await payments(None, None)) == 6


async def test_the_newest_entries_come_in_order_of_time(storage: Storage) -> None:
    await write(storage, *(settled(at(20, hour), f"pay_{hour}", ALICE) for hour in range(5)))
    assert [row.payment_id for row in await Accounts(storage).last(2, ALWAYS)] == ["pay_3", "pay_4"]


async def test_no_entry_is_lost_between_pages(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "ROWS_PER_PAGE", 3)
    written: list[str] = []
    for count in (0, 1, 3, 4, 13):
        new = [f"pay_{number}" for number in range(len(written), count)]
        await write(storage, *(settled(at(20), payment, ALICE) for payment in new))
        written += new
        assert [row.payment_id async for row in Accounts(storage).entries(ALWAYS)] == written
