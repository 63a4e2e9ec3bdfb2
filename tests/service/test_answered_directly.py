"""Every shipped tool is answered without the MCP server behind, in both protocol generations and by its twin, or a list says why not."""

import json
import tomllib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from contract.every_tool import CALLS, answered_otherwise
from contract.served_campus import CHECKOUT, CONFIG, NOWHERE, UNPAYABLE, Tokens, prepare
from mcp_oracle import INITIALIZE, LEGACY, MODERN, ask, request_of
from serving import write_config
from starlette.types import ASGIApp

from campus.app import Campus, assemble
from campus.asgi import open_app
from campus.config import read_config
from campus.testing import ORIGIN
from twins import ArgumentChecker
from twins.http.call import Twin

pytestmark = pytest.mark.anyio
SHIPPED = Path(__file__).parents[2] / "campus.toml"
BY_ITS_SERVER: Mapping[str, str] = {}
"""Shipped tools that their server must run, and why: each costs its callers some twenty times as much."""
CONSTANTS = {MODERN: ("tools/list", "server/discover"), LEGACY: ("tools/list", "initialize", "ping")}


class Shipped(NamedTuple):
    """What is shipped, open with a checkout, and a key of each kind."""

    campus: Campus
    app: ASGIApp
    tokens: Tokens
    day: str

    async def asked(self, path: str, version: str, method: str, params: Mapping[str, Any], *, key: str | None = None) -> tuple[str, Any]:
        headers = {"authorization": f"Bearer {key}" if key else None}
        answer = await ask(self.app, path, request_of(method, version, method, dict(params), headers=headers))
        return answer.way, json.loads(answer.texts[-1]).get("result")


@pytest.fixture(scope="module")
async def shipped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shipped]:
    folder = tmp_path_factory.mktemp("shipped")
    payments = "".join(f"{name} = {json.dumps(value)}\n" for name, value in UNPAYABLE.items())
    text = f'public_url = "{ORIGIN}"\ndirect_mcp = "explain"\n{CONFIG}{CHECKOUT}{payments}'
    tokens, day = await prepare(folder, text)
    config = read_config(write_config(folder, text.format(feeds=NOWHERE), port=1))
    async with assemble(config, exclusive=False) as campus, open_app(campus) as app:
        assert {one.name for one in campus.plan.opened} == {*tomllib.loads(SHIPPED.read_text())["buildings"], "checkout"}
        yield Shipped(campus, app, tokens, day.isoformat())


async def test_lists_and_handshakes_of_every_shipped_server_are_answered_without_it_once_they_are_learnt(shipped: Shipped) -> None:
    for one in shipped.campus.plan.opened:
        for version, method in [(version, method) for version, methods in CONSTANTS.items() for method in methods]:
            params = INITIALIZE if method == "initialize" else {}
            answers = [await shipped.asked(one.mcp_path, version, method, params) for _ in range(2)]
            (first, learnt), (again, told) = answers
            assert (first, again) == ("server; the answer is not known yet", "twins"), (one.name, version, method)
            assert learnt == told


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_every_shipped_tool_is_answered_without_the_mcp_server_with_a_key_and_without(shipped: Shipped, version: str) -> None:
    buildings = shipped.campus.plan.opened
    paths = {name: one.mcp_path for one in buildings for name in one.operations}
    names = {name: {each.wire: each.name for each in made.parameters} for one in buildings for name, made in one.operations.items()}
    sold = {name for one in buildings for name, offer in one.offers.items() if not offer.access.is_free}
    known: dict[str, Any] = {"day": shipped.day}
    ways: dict[str, set[str]] = {name: set() for name in paths}
    for call in (each for each in CALLS if each.tool in paths):  # of a tool with two methods once
        arguments = {names[call.tool].get(name, name): value for name, value in call.arguments(known).items()}
        params = {"name": call.tool, "arguments": arguments}
        way, result = await shipped.asked(paths[call.tool], version, "tools/call", params, key=shipped.tokens.campus_pass)
        ways[call.tool].add(way)
        answer = result["structuredContent"]
        assert answered_otherwise(call, answer["status"] if result["isError"] else 200, answer) is None, answer
        known |= call.learned(answer)
    for name, path in paths.items():
        way, refused = await shipped.asked(path, version, "tools/call", {"name": name, "arguments": {}})
        ways[name].add(way)
        assert (refused["structuredContent"].get("status") == 402) == (name in sold), refused
    assert {name: way for name, way in ways.items() if way != {"twins"}}.keys() == BY_ITS_SERVER.keys(), ways


async def test_the_twin_of_every_shipped_tool_runs_it_without_the_mcp_server(shipped: Shipped) -> None:
    for one in shipped.campus.plan.opened:
        twins = [Twin(one.server, ArgumentChecker(one.server, operation, catalog=one.catalog)) for operation in one.operations.values()]
        slow = {twin.operation.name for twin in twins if twin.direct is None}
        assert slow <= BY_ITS_SERVER.keys()
