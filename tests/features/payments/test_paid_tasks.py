"""Background tasks that are paid for: charged once when they succeed, found again by their payment, and told truly after kill -9."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest
from features.tasks.lab import make_lab
from patience import patience
from serving import Served, serving

from campus.features.chain import Chain, Facilitator, Payer, Wallet, headers_of, new_wallet, receipt_of, terms_of
from campus.testing import ORIGIN, Clock, TestCampus, open_campus
from tests import patient

pytestmark = pytest.mark.anyio
PRICE = 20_000
TOOLS = {"*": {"price": "0.02"}}
LATER = {"Prefer": "respond-async"}
CONFIG = """
public_url = "https://campus.example"
[storage]
url = "{storage}"
[payments]
network = "{network}"
pay_to = "{pay_to}"
facilitators = ["{facilitators[0]}"]
rpc_url = "{rpc_url}"
[products.lab]
scope = "lab"
price = "1"
term = "30 days"
[buildings.lab]
server = "features.tasks.lab:mcp"
tools = {{ "*" = {{ price = "0.02" }} }}
"""


@dataclass(frozen=True)
class PaidLab:
    """A campus whose tasks are sold, and who pays."""

    campus: TestCampus
    folder: Path
    chain: Chain
    payee: str
    payer: Payer

    async def pay(self, tool: str, sample: int, **changes: Any) -> dict[str, str]:
        asked = await self.campus.http.post(f"/v1/lab/{tool}", json={"sample": sample}, headers=LATER)
        assert asked.status_code == 402, asked.text
        return LATER | headers_of(self.payer.payload(terms_of(asked), **changes))

    async def begin(self, tool: str, sample: int, headers: Mapping[str, str]) -> httpx.Response:
        return await self.campus.http.post(f"/v1/lab/{tool}", json={"sample": sample}, headers=headers)

    async def ended(self, begun: httpx.Response) -> httpx.Response:
        return await polled(self.campus.http, begun)

    async def earned(self) -> int:
        return await self.chain.balance(self.payee)

    @property
    def runs(self) -> list[str]:
        return (self.folder / "runs").read_text().splitlines()


async def polled(http: httpx.AsyncClient, begun: httpx.Response, **options: Any) -> httpx.Response:
    assert begun.status_code == 202, begun.text
    answer = begun
    with anyio.fail_after(patience(90)):
        while answer.status_code == 202:
            await anyio.sleep(0.05)
            answer = await http.get(begun.headers["Location"], **options)
    return answer


@asynccontextmanager
async def open_lab(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, folder: Path, *, clock: Clock | None = None, **more: Any
) -> AsyncIterator[PaidLab]:
    (folder / "runs").touch()
    payee = new_wallet().address
    tables = {"payments": facilitator.table(payee) | more}
    async with open_campus(lab=make_lab(folder), tools=TOOLS, tables=tables, clock=clock) as campus:
        yield PaidLab(campus, folder, chain, payee, Payer(wallet))


async def test_a_task_is_charged_once_when_it_succeeds_and_found_again_by_its_payment(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    async with open_lab(chain, facilitator, wallet, tmp_path) as lab:
        (tmp_path / "hold").touch()
        for sample, tool, more in ((1, "measure", {}), (2, "weigh", {"Idempotency-Key": str(uuid4())})):
            headers = await lab.pay(tool, sample) | more
            begun = await lab.begin(tool, sample, headers)
            again = await lab.begin(tool, sample, headers)
            assert (again.status_code, again.json()["id"]) == (202, begun.json()["id"])
            assert await lab.earned() == PRICE * (sample - 1), "it has not succeeded yet"
            (tmp_path / "hold").unlink()
            answer = await lab.ended(begun)
            assert answer.json() == ({"sample": 1} if tool == "measure" else {"result": "2 g"})
            assert receipt_of(answer)["success"]
            assert await lab.earned() == PRICE * sample
            (tmp_path / "hold").touch()
            again = await lab.begin(tool, sample, headers)
            assert again.json()["id"] == begun.json()["id"]
            assert (await lab.ended(again)).json() == answer.json()
        other_payment = await lab.pay("weigh", 2) | more
        assert (await lab.begin("weigh", 2, other_payment)).json()["id"] == begun.json()["id"]
        assert len(lab.runs) == 2
        assert await lab.earned() == PRICE * 2


async def test_a_client_over_mcp_pays_once_and_gets_the_result_of_its_task_with_the_receipt(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    async with open_lab(chain, facilitator, wallet, tmp_path) as lab, lab.campus.mcp() as client:
        result = await lab.payer.call_mcp(client, "measure", {"sample": 3})
        assert result.structured_content == {"sample": 3}
        assert (result.meta or {})["x402/payment-response"]["success"]
        assert await lab.earned() == PRICE
        raw = await lab.payer.call_mcp(client, "show")
        assert (raw.meta or {})["x402/payment-response"]["success"], "also of a tool that returns MCP's own result"


async def test_a_task_that_fails_is_cancelled_or_lasts_longer_than_its_payment_costs_nothing(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    async with open_lab(chain, facilitator, wallet, tmp_path) as lab:
        failed = await lab.ended(await lab.begin("spill", 3, await lab.pay("spill", 3)))
        assert (failed.status_code, failed.json()["code"]) == (400, "tool_error")
        (tmp_path / "hold").touch()
        headers = await lab.pay("measure", 1)
        begun = await lab.begin("measure", 1, headers)
        assert (await lab.campus.http.delete(begun.headers["Location"])).json()["status"] == "cancelled"
        assert (await lab.ended(begun)).json()["code"] == "task_cancelled"
        soon = int(datetime.now(UTC).timestamp()) + 60
        stopped = await lab.ended(await lab.begin("measure", 2, await lab.pay("measure", 2, valid_before=soon)))
        assert (stopped.status_code, stopped.json()["code"]) == (504, "timeout")
        assert "sign one that is valid longer" in stopped.json()["detail"]
        assert await lab.earned() == 0
        (tmp_path / "hold").unlink()
        assert (await lab.ended(await lab.begin("measure", 1, headers))).json() == {"sample": 1}, "the payment is still good"
        assert await lab.earned() == PRICE


async def test_a_task_that_the_facilitator_failed_to_charge_is_completed_once_it_is_charged_and_nobody_sends_anything_again(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    clock = Clock()
    async with open_lab(chain, facilitator, wallet, tmp_path, clock=clock, chain_wait_seconds=1) as lab:
        facilitator.faults.settle_status_before = 503
        begun = await lab.begin("measure", 1, await lab.pay("measure", 1))
        with anyio.fail_after(patience(60)):
            while "503" not in facilitator.outcomes("settle"):  # noqa: ASYNC110  # the facilitator says nothing when it is asked
                await anyio.sleep(0.05)
        assert (await lab.campus.http.get(begun.headers["Location"])).json()["status"] == "working"
        facilitator.faults.clear()
        with anyio.fail_after(patience(90)):
            while await lab.earned() == 0:
                clock.move(timedelta(seconds=11))  # what a call held is left
                await lab.campus.service.run_job("payments.reconcile_payments")
                await anyio.sleep(0.5)
        answer = await lab.ended(begun)
        assert (answer.json(), receipt_of(answer)["success"]) == ({"sample": 1}, True)
        assert (lab.runs, await lab.earned()) == (["measure 1"], PRICE)


async def test_the_terms_of_a_tool_that_may_run_as_a_task_give_it_an_hour(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path
) -> None:
    async with open_lab(chain, facilitator, wallet, tmp_path) as lab:
        longest = {
            tool: terms_of(await lab.campus.http.post(f"{ORIGIN}/v1/lab/{tool}"))["accepts"][0]["maxTimeoutSeconds"]
            for tool in ("measure", "weigh", "look")
        }
        assert longest == {"measure": 3900, "weigh": 3900, "look": 300}


@pytest.mark.timeout(240)
async def test_after_kill_9_a_task_that_ran_is_interrupted_and_one_that_was_being_charged_has_its_result(
    chain: Chain, facilitator: Facilitator, wallet: Wallet, tmp_path: Path, storage_url: str
) -> None:
    (tmp_path / "runs").touch()
    payee = new_wallet().address
    text = CONFIG.format(storage=storage_url, **facilitator.table(payee))
    environ = {"PYTHONPATH": str(Path(__file__).parents[2]), "LAB_FOLDER": str(tmp_path)}
    begun: dict[str, httpx.Response] = {}
    key = ""

    def killed() -> None:
        nonlocal key
        with serving(tmp_path, text, environ=environ) as campus, facilitator.hold("settle") as hold:
            key = campus.key("lab")
            begun["charged"] = post(campus, 1, Payer(wallet))
            wait_until(lambda: hold.hits > 0)
            (tmp_path / "hold").touch()
            begun["paid"] = post(campus, 2, Payer(wallet))
            begun["key"] = post(campus, 3, key)
            wait_until(lambda: len((tmp_path / "runs").read_text().splitlines()) == 3)
            campus.process.kill()
            campus.process.wait()
        (tmp_path / "hold").unlink()

    await anyio.to_thread.run_sync(killed)
    with serving(tmp_path, text, environ=environ) as campus:
        async with patient.AsyncClient(base_url=campus.url) as http:
            for name, by in (("paid", {}), ("key", {"Authorization": f"Bearer {key}"})):
                answer = await polled(http, begun[name], headers=by)
                assert (answer.status_code, answer.json()["code"]) == (500, "task_interrupted")
            answer = await polled(http, begun["charged"])
            assert answer.json() == {"sample": 1}
            assert receipt_of(answer)["success"]
    assert await chain.balance(payee) == PRICE
    assert len((tmp_path / "runs").read_text().splitlines()) == 3


def post(campus: Served, sample: int, by: Payer | str) -> httpx.Response:
    call = partial(httpx.post, f"{campus.url}/v1/lab/measure", json={"sample": sample}, timeout=patience(20))
    return call(headers={"Authorization": f"Bearer {by}"} if isinstance(by, str) else headers_of(by.payload(terms_of(call()))))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience(30)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
