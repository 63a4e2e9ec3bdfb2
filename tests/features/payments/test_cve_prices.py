"""What the service sells, paid for on a real chain in production configuration: every price of cve, and one payment sent fifty times."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from buildings.cve.building import building as cve
from campus.features.chain import Chain, Facilitator, Payer, new_wallet
from campus.testing import ORIGIN, Clock, Frame, TestCampus, open_campus

pytestmark = pytest.mark.anyio
SAMPLE = (Path(__file__).parents[3] / "buildings" / "cve" / "sample").as_uri()
FEEDS = {
    "kev_url": f"{SAMPLE}/kev.json",
    "kev_mirror_url": f"{SAMPLE}/kev.json",
    "epss_url": f"{SAMPLE}/epss.csv",
    "nvd_url": f"{SAMPLE}/nvd.json",
    "archive_start": "2000-01-01",
}
DOLLAR = 1_000_000
PURSE = 10 * DOLLAR
FRAMES: tuple[Frame, Frame] = ("http", "mcp")
AT_ONCE = 50


def calls_on(today: str) -> dict[str, tuple[str, dict[str, str], int]]:
    return {
        "/v1/brief/today": ("top_cves_today", {}, 20_000),
        "/v1/kev/fresh": ("kev_fresh", {}, 10_000),
        "/v1/cve/CVE-2021-44228": ("cve_verdict", {"cve_id": "CVE-2021-44228"}, 5_000),
        "/v1/cve/CVE-2021-44228/history": ("cve_history", {"cve_id": "CVE-2021-44228"}, 10_000),
        f"/v1/archive/{today}": ("archived_brief", {"date": today}, 50_000),
        "/v1/next": ("next_in_kev", {}, 20_000),
        "/v1/cve/verdicts?cve_ids=CVE-2021-44228": ("cve_verdicts", {"cve_ids": "CVE-2021-44228"}, 100_000),
    }


@dataclass(frozen=True)
class Sales:
    """A campus with today's list, who is paid there, and who pays."""

    campus: TestCampus
    chain: Chain
    payee: str
    payer: Payer
    today: str

    async def moved(self) -> tuple[int, int]:
        return PURSE - await self.chain.balance(self.payer.wallet.address), await self.chain.balance(self.payee)


@pytest.fixture
async def sales(chain: Chain, facilitator: Facilitator, storage_url: str) -> AsyncIterator[Sales]:
    payer, payee = Payer(new_wallet()), new_wallet().address
    await chain.mint(payer.wallet.address, PURSE)
    table = facilitator.table(payee)
    assert table["network"] == "eip155:8453"
    clock = Clock(datetime.now(UTC))
    async with open_campus(settings=FEEDS, storage=storage_url, tables={"payments": table}, clock=clock, cve=cve) as campus:
        await campus.run("refresh", accept=True)
        yield Sales(campus, chain, payee, payer, str(clock().date()))


async def test_every_price_is_paid_exactly_and_without_gas_over_either_frame(sales: Sales) -> None:
    spent = 0
    async with sales.payer.http(ORIGIN, transport=httpx.ASGITransport(sales.campus.app)) as client, sales.campus.mcp() as mcp:
        for path, (tool, arguments, price) in calls_on(sales.today).items():
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["ok"]) == (200, True), path
            result = await sales.payer.call_mcp(mcp, tool, arguments)
            assert (result.is_error, result.structured_content) == (False, answer.json()), tool
            spent += 2 * price
            assert await sales.moved() == (spent, spent), path
        report = await client.post("/v1/cve/verdicts", content="see CVE-2021-44228", headers={"Accept": "text/csv"})
        assert (report.status_code, report.headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert report.text.startswith("bucket,when_if_exposed,cve_id,")
        spent += 100_000
        history = "/v1/cve/CVE-2021-44228/history"
        for refused, code in [
            (await client.post("/v1/cve/verdicts", content=" ".join(f"CVE-2026-{1000 + n}" for n in range(20_001))), "too_many_ids"),
            (await client.get("/v1/cve/verdicts", params={"cve_ids": "CVE\u20112021-44228"}), "invalid_cve_ids"),
            (await client.get("/v1/next", params={"date": "2001-02-03"}), "no_data_for_date"),
            (await client.post("/v1/cve/verdicts", content=b"CVE-2021-44228 " * 350_000), "too_large"),
            (
                await client.post("/v1/cve/verdicts", content=b"[" * 500_000, headers={"Content-Type": "application/json"}),
                "unreadable_report",
            ),
            (await client.get("/v1/brief/changes", params={"from": sales.today, "to": "2026-08-19"}), "invalid_window"),
            (await client.get(f"{history}?from={sales.today}&to=2026-08-19"), "invalid_window"),
            (await client.get(f"{history}?to=2001-02-03"), "no_data_for_date"),
            (await client.get("/v1/cve/CVE-1999-99999/history"), "no_history"),
        ]:
            assert refused.json()["code"] == code
        assert await sales.moved() == (spent, spent), "a refused call costs nothing"
    assert await sales.chain.gas(sales.payer.wallet.address) == 0
