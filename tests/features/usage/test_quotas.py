"""Products with a quota: how many calls a key opens in a day or a month, in all processes together, and what opens calls afterwards."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP

from campus import access, free, route
from campus.config import config_of
from campus.errors import ConfigError
from campus.features.chain import Payer, new_wallet, open_chain, open_facilitator
from campus.testing import Clock, Frame, TestCampus, open_campus

pytestmark = [pytest.mark.anyio, pytest.mark.both_databases]
NOON = datetime(2026, 8, 31, 12, tzinfo=UTC)
DICE = {"scope": "dice", "price": "19", "term": "90 days", "calls": 3, "per": "day"}


def building() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Dice")
    for name, offer in (("look", free()), ("roll", access(price="0.02"))):

        def play() -> str:
            """Play."""
            return "six"

        mcp.tool(play, name=name, annotations={"readOnlyHint": True}, meta=route(f"GET /v1/dice/{name}") | offer)
    return mcp


def products(**changes: Any) -> dict[str, Any]:
    return {"products": {"dice": {**DICE, **changes}, "all": {"scope": "all", "price": "29", "term": "30 days"}}}


async def statuses(campus: TestCampus, tool: str, times: int, key: str) -> dict[int, int]:
    return Counter([(await campus.call(tool, key=key)).status for _ in range(times)])


async def test_a_key_opens_the_calls_of_its_quota_and_then_none_until_the_next_period(frame: Frame, storage_url: str) -> None:
    clock = Clock(NOON)
    async with open_campus(frame=frame, dice=building(), clock=clock, storage=storage_url, tables=products()) as campus:
        key, token = await campus.service.keys.issue("dice")
        assert await statuses(campus, "look", 5, token) == {200: 5}, "a free tool needs no key, and takes nothing of its quota"
        assert (await campus.call("roll", key=token, sides="six")).code == "invalid_request", "which takes nothing of it either"
        assert await statuses(campus, "roll", 5, token) == {200: 3, 429: 2}
        refused = await campus.call("roll", key=token)
        assert (refused.code, refused.data["retry_after"]) == ("quota_used_up", 12 * 3600)
        assert refused.data["limit"] == {"name": "quota", "calls": 3, "per": "day", "ends_at": "2026-09-01T00:00:00Z"}
        assert [one["product"] for one in refused.data["unlock"]] == ["dice", "all"]
        assert "3 calls a day" in refused.data["detail"]
        assert "from 2026-09-01T00:00:00Z" in refused.data["detail"]
        _, rotated = await campus.service.keys.rotate(key.id)
        assert await statuses(campus, "roll", 1, rotated) == {429: 1}, "a rotation goes on"
        await campus.service.keys.renew(rotated)
        assert await statuses(campus, "roll", 1, rotated) == {429: 1}, "a renewal adds time, not calls"
        assert await statuses(campus, "roll", 1, await campus.key("dice")) == {200: 1}, "each key has a quota of its own"
        assert await statuses(campus, "roll", 1, await campus.key("all")) == {200: 1}, "a product without a quota has no bound"
        assert await statuses(campus, "look", 1, token) == {200: 1}
        clock.move(timedelta(hours=12))
        assert await statuses(campus, "roll", 4, rotated) == {200: 3, 429: 1}


async def test_calls_at_once_do_not_exceed_the_quota(storage_url: str) -> None:
    found: Counter[int] = Counter()
    async with open_campus(dice=building(), clock=Clock(NOON), storage=storage_url, tables=products(calls=10)) as campus:
        token = await campus.key("dice")

        async def call() -> None:
            found[(await campus.call("roll", key=token)).status] += 1

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(call)
                if number == 15:
                    tasks.start_soon(campus.service.feature("usage").flush)
        assert found == {200: 10, 429: 20}


async def test_processes_share_a_quota_and_know_each_others_calls_after_a_flush(storage_url: str) -> None:
    clock = Clock(NOON)
    tables = products(calls=5, per="month")
    async with (
        open_campus(dice=building(), clock=clock, storage=storage_url, tables=tables) as campus,
        open_campus(dice=building(), clock=clock, storage=storage_url, tables=tables) as other,
    ):
        token = await campus.key("dice")
        assert await statuses(campus, "roll", 2, token) == {200: 2}
        assert await statuses(other, "roll", 1, token) == {200: 1}
        for served in (campus, other):
            await served.service.feature("usage").flush()
        clock.move(timedelta(seconds=5))
        assert await statuses(campus, "roll", 3, token) == {200: 2, 429: 1}
    async with open_campus(dice=building(), clock=clock, storage=storage_url, tables=tables) as again:
        assert await statuses(again, "roll", 1, token) == {429: 1}, "what was counted outlives the process"
        clock.move(timedelta(hours=12))
        assert await statuses(again, "roll", 1, token) == {200: 1}, "another month"


async def test_every_answer_of_a_key_with_a_quota_says_how_many_calls_are_left() -> None:
    async with open_campus(dice=building(), clock=Clock(NOON), tables=products(per="month")) as campus:
        headers = {"Authorization": f"Bearer {await campus.key('dice')}"}
        answers = [await campus.http.get("/v1/dice/roll", headers=headers) for _ in range(4)]
        policy = f'"keyed";q=6000;w=60, "quota";q=3;w={31 * 86_400}'
        assert {one.headers["ratelimit-policy"] for one in answers} == {policy}
        assert [one.headers["ratelimit"].split(", ")[1] for one in answers] == [f'"quota";r={left};t=43200' for left in (2, 1, 0, 0)]
        assert [one.headers.get("retry-after") for one in answers] == [None, None, None, "43200"]
        page = await campus.http.get("/keys", headers={**headers, "Accept": "application/json"})
        assert page.json()["quota"] == {"calls": 3, "per": "month", "left": 0, "ends_at": "2026-09-01T00:00:00Z"}
        text = (await campus.http.get("/keys", headers={**headers, "Accept": "text/html"})).text
        assert "3 calls a month, 0 left until" in text
        refused = await campus.http.get("/v1/dice/roll")
        assert "dice ($19, 90 days, 3 calls a month)" in refused.json()["detail"]
        assert [one.get("allowance") for one in refused.json()["unlock"]] == ["3 calls a month", None]


async def test_a_payment_opens_a_call_whose_key_has_used_up_its_quota(frame: Frame) -> None:
    payer, payee = Payer(new_wallet()), new_wallet().address
    async with open_chain() as chain, open_facilitator(chain) as facilitator:
        await chain.mint(payer.wallet.address, 1_000_000)
        tables = {**products(calls=1), "payments": facilitator.table(payee)}
        async with open_campus(frame=frame, dice=building(), clock=Clock(), tables=tables) as campus:
            token = await campus.key("dice")
            assert await statuses(campus, "roll", 2, token) == {200: 1, 429: 1}
            refused = await campus.call("roll", key=token)
            assert "pay $0.02" in refused.data["detail"]
            terms = (await campus.call("roll")).terms
            assert terms is not None
            paid = await campus.call("roll", key=token, payment=payer.payload(terms))
            assert (paid.status, paid.receipt and paid.receipt["success"]) == (200, True)
            assert await chain.balance(payee) == 20_000
            await campus.service.feature("usage").flush()
            assert [one.calls for one in await campus.service.feature("usage").read(days=1)] == [1], "a paid call is none of the key's"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"calls": 0}, "greater than or equal to 1"),
        ({"calls": "3"}, "whole number"),
        ({"per": "week"}, "'day' or 'month'"),
        ({"calls": None}, 'per = "day" is the period of calls; add calls = 10000, or remove per'),
    ],
)
def test_a_quota_that_means_nothing_is_refused(changes: dict[str, Any], sentence: str, tmp_path: Any) -> None:
    table = {name: value for name, value in {**DICE, **changes}.items() if value is not None}
    with pytest.raises(ConfigError, match=sentence):
        config_of({"products": {"dice": table}}, tmp_path / "campus.toml", {})
