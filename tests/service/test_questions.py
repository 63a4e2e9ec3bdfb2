"""A tool that asks its caller first: any process takes up the answer, for the caller who was asked; over HTTP it says what it asks."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import mcp_types
import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from listening import listening
from mcp.server.request_state import RequestStateSecurity
from mcp_oracle import LEGACY, MODERN, P, request_of

from campus import access
from campus.http.mcp_sessions import PER_ADDRESS
from campus.testing import ORIGIN, Clock, TestCampus, open_campus
from tests import patient

pytestmark = pytest.mark.anyio
SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}
ANSWER = {"day": {"action": "accept", "content": {"day": "Monday"}}}
META = {f"{P}clientCapabilities": {"elicitation": {"form": {}}}}
HELLO: Mapping[str, Any] = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
REFUSED = "Invalid or expired requestState"


def make_inn(name: str | None = "Inn", **options: Any) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP(name, **options)

    @mcp.tool(output_schema=None, meta=access(key="optional"))
    async def book(city: str, ctx: Context) -> Any:
        """Book a room."""
        if ctx.input_responses is None:
            params = mcp_types.ElicitRequestFormParams(message="Which day?", requested_schema=dict(SCHEMA))
            asked = {"day": mcp_types.ElicitRequest(params=params)}
            return mcp_types.InputRequiredResult(input_requests=asked, request_state=f"in {city}")
        answer = ctx.input_responses["day"]
        assert isinstance(answer, mcp_types.ElicitResult)
        assert answer.content is not None
        return f"{answer.content['day']} {ctx.request_state}"

    @mcp.tool(meta=access(key="optional"))
    async def confirm(ctx: Context) -> str:
        """Ask in the way of older clients."""
        answer = await ctx.elicit("Are you sure?", bool)
        return str(answer)

    return mcp


async def call(campus: TestCampus, *, key: str | None = None, city: str = "Rome", **more: Any) -> Any:
    headers = {"authorization": f"Bearer {key}" if key else None}
    params = {"name": "book", "arguments": {"city": city}, **more}
    request = request_of("book", MODERN, "tools/call", params, meta=META, headers=headers)
    sent = (await campus.http.post("/inn/mcp", content=request.body, headers=dict(request.headers))).text
    message = json.loads(sent.rpartition("data: ")[2])
    return message.get("result") or message["error"]


@asynccontextmanager
async def two_processes(storage_url: str, clock: Clock | None = None, **options: Any) -> AsyncIterator[tuple[TestCampus, TestCampus]]:
    async with (
        open_campus(inn=make_inn(**options), storage=storage_url, clock=clock) as one,
        open_campus(inn=make_inn(**options), storage=storage_url, clock=clock) as other,
    ):
        yield one, other


async def asked(campus: TestCampus, key: str | None = None) -> str:
    """The sealed state of a question."""
    question = await call(campus, key=key)
    assert question["inputRequests"]["day"]["params"]["requestedSchema"] == SCHEMA
    state: str = question["requestState"]
    return state


async def answered(campus: TestCampus, state: str, *, key: str | None = None, city: str = "Rome") -> str:
    found = await call(campus, key=key, city=city, requestState=state, inputResponses=ANSWER)
    return str(found["message"] if "message" in found else found["content"][0]["text"])


@pytest.mark.parametrize("mode", ["on", "off"])
async def test_a_tool_that_needs_a_session_to_ask_is_refused_with_a_sentence(mode: str) -> None:
    server = {"public_url": ORIGIN, "direct_mcp": mode}
    async with open_campus(inn=make_inn(), tables={"server": server}) as campus:
        for version, sentence in ((LEGACY, "this service keeps no sessions"), (MODERN, "unavailable on 2026-07-28 connections")):
            request = request_of("confirm", version, "tools/call", {"name": "confirm", "arguments": {}})
            refused = await campus.http.post("/inn/mcp", content=request.body, headers=dict(request.headers))
            assert sentence in refused.text
            assert '"isError":true' in refused.text


async def test_a_building_with_sessions_lets_tools_ask_older_clients_and_a_session_is_its_keys_alone() -> None:
    async def agree(message: str, *_: Any) -> dict[str, bool]:
        return {"value": message == "Are you sure?"}

    async with open_campus(inn=make_inn(), settings={"sessions": True}) as campus, listening(campus.app, lifespan="off") as base:
        keys = [await campus.key("inn"), await campus.key("inn"), None]
        transport = StreamableHttpTransport(f"{base}/inn/mcp", headers={"Authorization": f"Bearer {keys[0]}"})
        async with Client(transport, mode="legacy", elicitation_handler=agree) as client, patient.AsyncClient() as http:
            assert "data=True" in (await client.call_tool("confirm")).data
            session = {"mcp-session-id": transport.get_session_id()}
            found = []
            for key in keys:
                request = request_of(
                    "list", LEGACY, "tools/list", {}, headers=session | {"authorization": f"Bearer {key}" if key else None}
                )
                found.append((await http.post(f"{base}/inn/mcp", content=request.body, headers=dict(request.headers))).status_code)
        assert found == [200, 404, 404]


async def test_an_address_opens_no_more_sessions_than_its_share_and_shuts_out_neither_others_nor_keys() -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    plain = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

    def of(campus: TestCampus, address: str, **headers: str) -> httpx.AsyncClient:
        return patient.AsyncClient(transport=httpx.ASGITransport(campus.app, client=(address, 1)), base_url=ORIGIN, headers=plain | headers)

    async def opened(client: httpx.AsyncClient) -> str | int:
        answer = await client.post("/inn/mcp", json=body)
        return answer.headers.get("mcp-session-id", answer.status_code)

    async with open_campus(inn=make_inn(), settings={"sessions": True}) as campus:
        key = f"Bearer {await campus.key('inn')}"
        async with of(campus, "192.0.2.1") as greedy, of(campus, "192.0.2.2") as other, of(campus, "192.0.2.1", authorization=key) as keyed:
            mine = [await opened(greedy) for _ in range(PER_ADDRESS)]
            assert len({*mine}) == PER_ADDRESS
            assert await opened(greedy) == 429
            twice = [("mcp-protocol-version", LEGACY), ("mcp-protocol-version", MODERN)]  # the server of a session reads the first
            assert (await greedy.post("/inn/mcp", json=body, headers=twice)).status_code == 429
            ended = [("mcp-session-id", "unknown"), ("mcp-session-id", str(mine[1])), ("mcp-protocol-version", LEGACY)]
            assert (await greedy.delete("/inn/mcp", headers=ended)).status_code == 404
            assert await opened(greedy) == 429, "a session that was not ended still counts"
            assert isinstance(await opened(other), str)
            assert isinstance(await opened(keyed), str)
            request = request_of("book", MODERN, "tools/call", {"name": "book", "arguments": {"city": "Rome"}}, meta=META, headers={})
            assert "Which day?" in (await greedy.post("/inn/mcp", content=request.body, headers=dict(request.headers))).text
            taken = {"mcp-session-id": str(mine[0]), "mcp-protocol-version": LEGACY}
            assert (await keyed.delete("/inn/mcp", headers=taken)).status_code == 404
            assert await opened(greedy) == 429, "it is open, and counted, whatever others are told of it"
            assert (await other.delete("/inn/mcp", headers=taken)).status_code < 500
            assert (await greedy.delete("/inn/mcp", headers=taken)).status_code in (200, 202, 204, 404)
            assert isinstance(await opened(greedy), str)


async def test_an_answer_is_taken_up_by_another_process_and_after_a_restart(storage_url: str) -> None:
    async with two_processes(storage_url, name=None) as (one, other):
        state = await asked(one)
        assert await answered(other, state) == "Monday in Rome"
        assert await answered(other, state, city="Oslo") == REFUSED, "it was asked of another call"
        assert await answered(one, await asked(other)) == "Monday in Rome"
    async with open_campus(inn=make_inn(), storage=storage_url) as restarted:
        assert await answered(restarted, state) == "Monday in Rome"


async def test_an_answer_counts_for_the_lineage_of_the_key_that_was_asked(storage_url: str) -> None:
    async with two_processes(storage_url) as (one, other):
        key, token = await one.service.keys.issue("inn")
        stranger = await one.key("inn")
        state = await asked(one, token)
        for thief in (stranger, None):
            assert await answered(other, state, key=thief) == REFUSED
        _, rotated = await one.service.keys.rotate(key.id)
        assert await answered(other, state, key=rotated) == "Monday in Rome"
        assert await answered(other, await asked(one), key=token) == REFUSED, "asked without a key"


async def test_a_key_that_seals_is_renewed_and_the_one_before_opens_what_it_sealed(storage_url: str) -> None:
    clock = Clock()
    async with two_processes(storage_url, clock) as (one, other):
        first = await asked(one)
        clock.move(timedelta(days=31))
        assert await answered(one, first) == "Monday in Rome", "a new key is made, and is not used yet"
        before = await asked(one)
        clock.move(timedelta(hours=2))
        assert await answered(other, after := await asked(one)) == "Monday in Rome"
        assert key_of(first) == key_of(before) != key_of(after)
        assert await answered(other, before) == "Monday in Rome"
        clock.move(timedelta(days=31))
        await asked(one)
        assert await answered(other, first) == REFUSED, "the oldest key is gone"
        assert await answered(other, after) == "Monday in Rome"


def key_of(state: str) -> str:
    return state[3:8]


async def test_an_authors_own_keys_are_used() -> None:
    def inn() -> FastMCP[Any]:
        return make_inn(request_state_security=RequestStateSecurity(keys=["k" * 32]))

    async with open_campus(inn=inn()) as one, open_campus(inn=inn()) as elsewhere:
        assert await answered(elsewhere, await asked(one)) == "Monday in Rome"


async def test_a_tool_that_asks_says_over_http_what_it_asks_and_how_to_answer() -> None:
    async with open_campus(inn=make_inn()) as campus:
        refused = await campus.call("book", city="Rome")
        assert (refused.status, refused.code) == (409, "input_required")
        assert refused.data["input_requests"]["day"]["params"] == {"mode": "form", "message": "Which day?", "requestedSchema": SCHEMA}
        assert refused.data["detail"].startswith("this tool asks its caller first: Which day?; call it over MCP with a client")
        assert "in Rome" not in str(refused.data)
        older = await campus.call("confirm")
        assert (older.status, older.code) == (409, "input_required")
        assert "it can ask only in an MCP session" in older.data["detail"]
        asked_for = older.data["input_requests"]["elicitation/create"]["params"]
        assert (asked_for["message"], list(asked_for["requestedSchema"]["properties"])) == ("Are you sure?", ["value"])
