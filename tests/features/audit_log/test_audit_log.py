"""The audit log: who called what, how it ended, what was paid, and who changed which key; never arguments, results or secrets."""

import csv
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

from campus import access, free, route
from campus.cli import commands
from campus.features.audit_log.log import MOST_WAITING, audit_entries
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from campus.testing import Clock, Frame, TestCampus, open_campus
from tests.serving import free_port, write_config

pytestmark = pytest.mark.anyio
FRAMES: tuple[Frame, ...] = ("http", "mcp")
ARGUMENT, RESULT, PASSWORD = "asked-for-this", "answered-with-that", "correct horse battery"
LOGGED = {"audit_log": {"days": 30}}


def building() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Dice")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/dice/look") | free())
    def look(at: str = "") -> str:
        """Look."""
        if at == "nothing":
            raise ToolError("there is nothing")
        return RESULT

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/dice/roll") | access(price="0.02"))
    def roll(at: str = "") -> str:
        """Roll."""
        if at == "crash":
            raise RuntimeError("gone")
        return RESULT

    return mcp


async def entries(campus: TestCampus) -> list[Any]:
    audit = campus.service.feature("audit_log")
    if audit is not None:
        await audit.flush()
    ages = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
    return [one async for one in audit_entries(campus.service.core.storage, since=ages[0], until=ages[1])]


@pytest.mark.both_databases
async def test_every_call_is_noted_with_who_made_it_and_how_it_ended(storage_url: str) -> None:
    async with open_campus(dice=building(), storage=storage_url, tables=LOGGED) as opened:
        for frame in FRAMES:
            campus = replace(opened, frame=frame)
            key, token = await campus.service.keys.issue("dice")
            for tool, at, sent in (
                ("roll", ARGUMENT, token),
                ("look", ARGUMENT, None),
                ("look", "nothing", token),
                ("roll", "crash", token),
                ("roll", ARGUMENT, None),
            ):
                await campus.call(tool, at=at, key=sent)
            await campus.call("roll", wrong=ARGUMENT, key=token)
            await campus.service.keys.revoke(key.id)
            await campus.call("roll", key=token)
            found = await entries(campus)
            assert [(one.who, one.building, one.tool, one.outcome) for one in found if one.frame == frame] == [
                (key.id, "dice", "roll", "ok"),
                (None, "dice", "look", "ok"),
                (key.id, "dice", "look", "tool_error"),
                (key.id, "dice", "roll", "internal_error"),
                (None, "dice", "roll", "access_required"),
                (key.id, "dice", "roll", "invalid_request"),
                (key.id, "dice", "roll", "key_revoked"),
            ]
            changes = [(one.who, one.tool) for one in found if not one.frame]
            assert changes[-2:] == [("operator", f"key issued {key.id}"), ("operator", f"key revoked {key.id}")]
            stored = json.dumps([one.model_dump(mode="json") for one in found])
            assert not [secret for secret in (ARGUMENT, RESULT, token, token[-12:]) if secret in stored]
    assert {one.frame for one in found} == {*FRAMES, None}


async def test_a_paid_call_is_noted_with_its_payer_and_its_price() -> None:
    payer, payee = Payer(new_wallet()), new_wallet().address
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 1_000_000)
        tables = {**LOGGED, "payments": facilitator.table(payee)}
        async with open_campus(dice=building(), tables=tables) as opened:
            for campus in (replace(opened, frame=frame) for frame in FRAMES):
                terms = (await campus.call("roll")).terms
                assert terms is not None
                payment = payer.payload(terms)
                for _ in range(2):  # the second time the stored answer, at no cost
                    assert (await campus.call("roll", payment=payment)).status == 200
            found = await entries(opened)
    wallet = payer.wallet.address.lower()
    paid = [(one.frame, one.who and one.who.lower(), one.outcome, one.amount) for one in found]
    for frame in FRAMES:
        expected = [(frame, None, "access_required", None), (frame, wallet, "ok", 20_000), (frame, wallet, "ok", None)]
        assert [one for one in paid if one[0] == frame] == expected


async def test_without_the_table_calls_are_not_noted() -> None:
    async with open_campus(dice=building()) as campus:
        await campus.call("roll", key="dice")
        assert [one.tool.partition(" key_")[0] for one in await entries(campus)] == ["key issued"]


@pytest.mark.both_databases
async def test_old_entries_are_deleted_and_those_that_cannot_be_stored_are_bounded(storage_url: str) -> None:
    clock = Clock()
    async with open_campus(dice=building(), clock=clock, storage=storage_url, tables=LOGGED) as campus:
        audit = campus.service.feature("audit_log")
        assert audit is not None
        for _ in range(1_500):
            audit.note("key_a", "dice", "roll", "ok")
        noted = dict(audit._buffer.waiting)
        await audit.flush()
        audit._buffer.waiting |= noted  # as after an interruption: they are stored once
        await audit.flush()
        assert len(await entries(campus)) == 1_500
        clock.move(timedelta(days=20))
        audit.note("key_b", "dice", "roll", "ok")
        clock.move(timedelta(days=11))
        await audit.flush()
        await campus.service.run_job("audit_log.delete_old")
        assert [one.who for one in await entries(campus)] == ["key_b"]
        for _ in range(MOST_WAITING + 3):
            audit.note("key_c", "dice", "roll", "ok")
        assert (len(audit._buffer.waiting), audit._buffer.lost) == (MOST_WAITING, 3)
        audit._buffer.waiting.clear()


async def test_acts_of_the_operator_are_noted() -> None:
    secrets = {"CAMPUS_OPERATOR_PASSWORD": PASSWORD}
    async with open_campus(dice=building(), tables=LOGGED, secrets=secrets) as campus, campus.admin() as admin:
        for password in ("wrong password", PASSWORD):
            form = (await admin.get("/sign-in")).text.partition('name="form_token" value="')[2].partition('"')[0]
            await admin.post("/sign-in", data={"form_token": form, "password": password})
        found = [(one.who, one.building, one.tool, one.outcome) for one in await entries(campus)]
    assert found == [(None, "operator", "/sign-in", "refused"), ("operator", "operator", "/sign-in", "ok")]


async def test_the_log_is_exported_as_lines_of_json_or_csv(tmp_path: Path, storage_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(datetime(2026, 8, 21, 12, tzinfo=UTC))
    async with open_campus(dice=building(), clock=clock, storage=storage_url, tables=LOGGED) as campus:
        await campus.call("look")
        clock.move(timedelta(days=1))
        key, token = await campus.service.keys.issue("dice")
        clock.move(timedelta(seconds=1))
        await campus.call("roll", key=token)
    config = str(write_config(tmp_path, f'[storage]\nurl = "{storage_url}"\n', port=free_port()))

    def exported(*words: str) -> str:
        commands()(["audit-log", *words, "--config", config], result_action="return_value")
        return capsys.readouterr().out

    lines = [json.loads(line) for line in (await to_thread.run_sync(exported)).splitlines()]
    assert [one["tool"] for one in lines] == ["look", f"key issued {key.id}", "roll"]
    assert lines[2] | {"request_id": None} == {
        "at": "2026-08-22T12:00:01.000000Z",
        "who": key.id,
        "frame": "http",
        "building": "dice",
        "tool": "roll",
        "outcome": "ok",
        "usd": None,
        "request_id": None,
    }
    rows = list(csv.DictReader((await to_thread.run_sync(exported, "--format", "csv", "--until", "2026-08-21")).splitlines()))
    assert [(one["at"], one["who"], one["tool"]) for one in rows] == [("2026-08-21T12:00:00.000000Z", "", "look")]
    assert len((await to_thread.run_sync(exported, "--since", "2026-08-22")).splitlines()) == 2
