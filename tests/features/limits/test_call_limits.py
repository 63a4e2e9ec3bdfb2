"""How many calls a minute are answered: by address, by key and by building, over HTTP and MCP alike."""

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
from fastmcp import FastMCP

from campus import access, free, route
from campus.testing import Clock, Frame, TestCampus, open_campus
from tests import patient
from tests.postgres_server import Postgres

pytestmark = pytest.mark.anyio
FEW = {"free": 3, "keyed": 5, "unpaid": 2}


def building() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Dice")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/dice/look") | free())
    def look() -> str:
        """Look at the dice."""
        return "six"

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/dice/roll") | access())
    def roll() -> str:
        """Roll the dice."""
        return "six"

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/dice/beat") | free(limited=False))
    def beat() -> str:
        """Say that the dice are there."""
        return "six"

    return mcp


async def statuses(campus: TestCampus, tool: str, times: int, **options: Any) -> dict[int, int]:
    return Counter([(await campus.call(tool, **options)).status for _ in range(times)])


async def test_a_burst_of_free_calls_is_not_answered_without_end() -> None:
    async with open_campus(dice=building()) as campus:
        answered = await statuses(campus, "look", 610)
        assert answered == {200: 600, 429: 10}


async def test_each_kind_of_call_has_a_limit_of_its_own_and_the_next_call_is_answered_when_its_time_comes(frame: Frame) -> None:
    clock = Clock()
    async with open_campus(frame=frame, dice=building(), clock=clock, tables={"limits": FEW}) as campus:
        keys = [await campus.key("dice") for _ in range(2)]
        assert await statuses(campus, "look", 4) == {200: 3, 429: 1}
        assert await statuses(campus, "roll", 3) == {402: 2, 429: 1}
        assert await statuses(campus, "roll", 6, key=keys[0]) == {200: 5, 429: 1}
        assert await statuses(campus, "look", 1, key=keys[0]) == {429: 1}, "a key has one limit for all its calls"
        assert await statuses(campus, "look", 1, key=keys[1]) == {200: 1}, "and its free calls are not those of its address"
        assert await statuses(campus, "roll", 1, key=keys[1]) == {200: 1}
        assert await statuses(campus, "beat", 9) == {200: 9}
        refused = await campus.call("look")
        assert (refused.code, refused.data["retry_after"]) == ("too_many_calls", 20)
        assert refused.data["limit"] == {"name": "free", "calls": 3, "seconds": 60}
        assert "at most 3 free calls" in refused.data["detail"]
        clock.move(timedelta(seconds=19))
        assert await statuses(campus, "look", 1) == {429: 1}
        clock.move(timedelta(seconds=1))
        assert await statuses(campus, "look", 2) == {200: 1, 429: 1}


async def test_a_renewed_key_does_not_begin_anew() -> None:
    async with open_campus(dice=building(), tables={"limits": FEW}) as campus:
        key, token = await campus.service.keys.issue("dice")
        assert await statuses(campus, "roll", 6, key=token) == {200: 5, 429: 1}
        _, other = await campus.service.keys.rotate(key.id)
        assert await statuses(campus, "roll", 1, key=other) == {429: 1}


async def test_unknown_keys_are_counted_before_the_database_is_asked(frame: Frame) -> None:
    async with open_campus(frame=frame, dice=building(), tables={"limits": FEW}) as campus, open_campus(other=building()) as elsewhere:
        for status in (402, 402, 429):
            reply = await campus.call("roll", key=await elsewhere.key("other"))
            assert reply.status == status


async def test_each_ipv4_address_and_each_64_of_ipv6_is_a_caller() -> None:
    async with open_campus(dice=building(), tables={"limits": {"free": 1}}) as campus:
        found = []
        for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
            transport = httpx.ASGITransport(campus.app, client=(address, 1))
            async with patient.AsyncClient(transport=transport, base_url="http://campus.test") as http:
                found.append((await http.get("/v1/dice/look")).status_code)
        assert found == [200, 200, 429, 200, 429, 200]


async def test_every_counted_answer_says_how_many_calls_are_left() -> None:
    async with open_campus(dice=building(), tables={"limits": FEW}) as campus:
        found = []
        for _ in range(4):
            answer = await campus.http.get("/v1/dice/look")
            assert answer.headers["ratelimit-policy"] == '"free";q=3;w=60'
            found.append((answer.headers["ratelimit"], answer.headers.get("retry-after")))
        assert found == [('"free";r=2;t=20', None), ('"free";r=1;t=40', None), ('"free";r=0;t=60', None), ('"free";r=0;t=20', "20")]
        assert (await campus.http.get("/v1/dice/roll")).headers["ratelimit"] == '"unpaid";r=1;t=30'
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}}}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        over_mcp = await campus.http.post("/dice/mcp", json=call, headers=headers)
        assert (over_mcp.status_code, over_mcp.headers["ratelimit"]) == (200, '"free";r=0;t=20')
        assert "ratelimit" not in (await campus.http.get("/v1/dice/beat")).headers


async def test_two_processes_on_postgresql_answer_a_caller_as_often_as_one_does(postgres: Postgres) -> None:
    name = postgres.create_database()
    few = partial(open_campus, storage=postgres.url(name), tables={"limits": {"free": 60}})
    async with few(dice=building()) as first, few(dice=building()) as second, first.services(), second.services():
        assert await statuses(first, "look", 61) == {200: 60, 429: 1}, "one process answers the whole limit"
        answered = 0
        while (await second.call("look")).status == 200:
            answered += 1
            await anyio.sleep(0.1)  # it learns within a second what the first has answered
        assert answered < 40
        await first.service.run_job("limits.forget_limits")
    postgres.drop_database(name)


async def test_a_building_can_have_a_limit_for_all_its_callers_and_off_takes_a_limit_away() -> None:
    limits = {"free": "off", "keyed": "off", "unpaid": "off", "building": 4}
    async with open_campus(dice=building(), cups=cups(), tables={"limits": limits}) as campus:
        assert await statuses(campus, "roll", 2, key="dice") == {200: 2}
        assert await statuses(campus, "look", 3) == {200: 2, 429: 1}
        assert await statuses(campus, "lift", 1, building="cups") == {200: 1}
    async with open_campus(dice=building(), tables={"limits": {**limits, "building": "off"}}) as campus:
        assert await statuses(campus, "look", 5) == {200: 5}
        assert "ratelimit" not in (await campus.http.get("/v1/dice/look")).headers


def cups() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Cups")

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /v1/cups/lift") | free())
    def lift() -> str:
        """Lift a cup."""
        return "nothing"

    return mcp
