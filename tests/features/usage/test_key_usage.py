"""What each key called, by day and tool: stored now and then, shown to its holder and to the operator."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from fastmcp import FastMCP

from campus import access, free, route
from campus.cli import commands
from campus.features.usage.feature import KEPT
from campus.testing import Clock, TestCampus, open_campus
from tests.serving import free_port, write_config

pytestmark = pytest.mark.anyio


def building() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Dice")
    for name, offer in (("look", free()), ("roll", access())):

        def play() -> str:
            """Play."""
            return "six"

        mcp.tool(play, name=name, annotations={"readOnlyHint": True}, meta=route(f"GET /v1/dice/{name}") | offer)
    return mcp


async def calls_of(campus: TestCampus, token: str) -> list[tuple[str, str, int]]:
    page = await campus.http.get("/keys", headers={"Authorization": f"Bearer {token}", "Accept": "application/json"})
    return [(one["day"], one["tool"], one["calls"]) for one in page.json()["calls"]]


@pytest.mark.both_databases
async def test_a_keys_calls_are_counted_by_day_and_tool_in_all_processes_together(storage_url: str) -> None:
    clock = Clock(datetime(2026, 8, 21, 12, tzinfo=UTC))
    async with (
        open_campus(dice=building(), clock=clock, storage=storage_url) as campus,
        open_campus(frame="mcp", dice=building(), clock=clock, storage=storage_url) as other,
    ):
        key, token = await campus.service.keys.issue("dice")
        for served, times in ((campus, 3), (other, 2)):
            for _ in range(times):
                assert (await served.call("roll", key=token)).status == 200
            await served.call("look", key=token)
            await served.call("roll")  # without a key, and without an answer
        assert await calls_of(campus, token) == [], "nothing is written for a call"
        for served in (campus, other):
            await served.service.run_job("usage.flush")
            await served.service.run_job("usage.flush")  # adds nothing again
        assert await calls_of(campus, token) == [("2026-08-21", "look", 2), ("2026-08-21", "roll", 5)]
        clock.move(timedelta(days=1))
        _, rotated = await campus.service.keys.rotate(key.id)
        await campus.call("roll", key=rotated)
        await campus.service.run_job("usage.flush")
        assert (await calls_of(other, rotated))[0] == ("2026-08-22", "roll", 1), "a rotation goes on"
        assert len(await calls_of(other, rotated)) == 3
        page = await campus.http.get("/keys", headers={"Authorization": f"Bearer {rotated}", "Accept": "text/markdown"})
        assert "2026-08-22" in page.text
        assert await campus.service.feature("usage").totals([key.lineage, "key_other"], days=1) == {key.lineage: 1}
        assert await calls_of(campus, await campus.key("dice")) == [], "another key's calls are its own"


async def test_what_cannot_be_stored_is_stored_later_and_what_is_old_is_deleted(storage_url: str) -> None:
    clock = Clock(datetime(2026, 8, 21, 12, tzinfo=UTC))
    async with open_campus(dice=building(), clock=clock, storage=storage_url) as campus:
        usage = campus.service.feature("usage")
        key, _ = await campus.service.keys.issue("dice")
        usage.count(key, "dice", "roll")
        usage.count(key, "dice", "\ud800")  # which no database stores
        with pytest.raises(Exception, match=r"surrogates|utf-8|UTF8"):
            await usage.flush()
        [bad] = [used for used in usage._counts.waiting if used.tool == "\ud800"]
        del usage._counts.waiting[bad]
        await usage.flush()
        assert [(one.tool, one.calls) for one in await usage.read(days=1)] == [("roll", 1)]
        clock.move(KEPT + timedelta(days=1))
        usage.count(key, "dice", "look")
        await usage.flush()
        assert [one.tool for one in await usage.read(days=800)] == ["look"]


async def test_the_operator_lists_what_keys_called(tmp_path: Path, storage_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_campus(dice=building(), storage=storage_url) as campus:
        key, token = await campus.service.keys.issue("dice")
        await campus.call("roll", key=token)
    text = f'[storage]\nurl = "{storage_url}"\n[products.dice]\nscope = "dice"\nprice = "19"\nterm = "30 days"\n'
    config = str(write_config(tmp_path, text, port=free_port()))

    def listed(*words: str) -> list[dict[str, Any]]:
        commands()(["key", "usage", *words, "--json", "--config", config], result_action="return_value")
        rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return rows

    expected = {"key": key.lineage, "building": "dice", "tool": "roll", "calls": 1}
    for words in ((), (key.id,)):
        [row] = await to_thread.run_sync(listed, *words)
        assert row.items() >= expected.items()
