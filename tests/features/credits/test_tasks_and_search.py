"""Keys that pay for calls which go on after their request, and for those that tool search makes: one debit for each that is delivered."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastmcp.server.transforms.search import BM25SearchTransform
from features.credits.dice import Dice
from features.tasks.lab import make_lab
from features.tasks.test_tasks import bearer, ended

from campus.features.credits.accounts import Accounts
from campus.testing import Clock, TestCampus, open_campus

pytestmark = pytest.mark.anyio
PRICED = {"*": {"price": "0.02"}}


def products(scope: str) -> dict[str, Any]:
    return {"products": {scope: {"scope": scope, "price": "5", "term": "90 days", "credits": "0.10"}}}


async def account(campus: TestCampus) -> tuple[int, int, int]:
    accounts: Accounts = campus.service.feature("credits")
    (found,) = await accounts.all()
    return found.balance, found.held, found.spent


async def test_a_task_is_charged_once_when_it_succeeded(tmp_path: Path) -> None:
    async with open_campus(lab=make_lab(tmp_path), tools=PRICED, tables=products("lab")) as campus:
        key = await campus.key("lab")
        later = {"Prefer": "respond-async", **bearer(key)}
        failed = await campus.http.post("/v1/lab/spill", json={"sample": 1}, headers=later)
        assert (await ended(campus, failed, key=key)).status_code == 400
        (tmp_path / "hold").touch()
        running = await campus.http.post("/v1/lab/measure", json={"sample": 1}, headers=bearer(key))
        assert await account(campus) == (80_000, 20_000, 0)
        await campus.http.delete(running.headers["Location"], headers=bearer(key))
        assert (await ended(campus, running, key=key)).json()["code"] == "task_cancelled"
        (tmp_path / "hold").unlink()
        done = await campus.http.post("/v1/lab/measure", json={"sample": 1}, headers=bearer(key))
        assert (await ended(campus, done, key=key)).json() == {"sample": 1}
        assert await account(campus) == (80_000, 0, 20_000)


@pytest.mark.parametrize("fate", ["cancelled", "abandoned"])
async def test_a_task_that_was_charged_is_delivered_though_it_is_cancelled_or_its_process_ends_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    clock = Clock()
    shared: dict[str, Any] = {"storage": f"sqlite:{tmp_path / 'data'}", "tools": PRICED, "tables": products("lab"), "clock": clock}
    async with open_campus(lab=make_lab(tmp_path), **shared) as other, open_campus(lab=make_lab(tmp_path), **shared) as campus:
        key = await campus.key("lab")
        holds = campus.service.feature("credits").holds
        capture = holds.capture
        told: list[Any] = []
        is_told = anyio.Event()

        async def captured(*arguments: Any) -> bool:
            charged: bool = await capture(*arguments)
            place = f"/v1/lab/tasks/{(tmp_path / 'task').read_text()}"
            if fate == "abandoned":
                clock.move(timedelta(minutes=1))
                told.append((await other.http.get(place, headers=bearer(key))).json())
            else:
                told.append((await campus.http.delete(place, headers=bearer(key))).json()["status"])
            is_told.set()
            return charged

        (tmp_path / "hold").touch()
        monkeypatch.setattr(holds, "capture", captured)
        accepted = await campus.http.post("/v1/lab/measure", json={"sample": 1}, headers=bearer(key))
        (tmp_path / "task").write_text(accepted.json()["id"])
        (tmp_path / "hold").unlink()
        assert (await ended(campus, accepted, key=key)).json() == {"sample": 1}
        await is_told.wait()
        assert told == [{"sample": 1} if fate == "abandoned" else "working"]
        assert await account(campus) == (80_000, 0, 20_000)


async def test_a_call_by_tool_search_is_charged_as_the_tool_that_it_reaches() -> None:
    server = Dice().server()
    server.add_transform(BM25SearchTransform())
    async with open_campus(dice=server, tables=products("dice")) as campus:
        key = await campus.key("dice")
        async with campus.mcp("dice", headers=bearer(key)) as client:
            found = [await client.call_tool("call_tool", {"name": "roll", "arguments": {}}, raise_on_error=False) for _ in range(6)]
        assert [one.is_error for one in found] == [False] * 5 + [True]
        assert found[-1].structured_content["code"] == "credits_used_up"
        assert (found[0].meta or {})["campus/credits"] == {"balance": "0.08"}
        assert await account(campus) == (0, 0, 100_000)
