"""Tool search and code mode: their tools find and call the server's, and each call is admitted and paid as the tool that it reaches."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server.transforms.catalog import CatalogTransform
from fastmcp.server.transforms.search import BM25SearchTransform
from fastmcp.tools import Tool
from features.payments.terms.paid_campus import open_paid_campus

from campus import Building, Caller, CurrentCaller, access, free, route
from campus.errors import ConfigError, LoadError
from campus.testing import TestCampus, open_campus

pytestmark = pytest.mark.anyio
SECRET = "a-forecast-that-is-paid-for"


class Sandbox:
    """Runs calls that are written as JSON, one after the other or all at once."""

    async def run(self, code: str, *, inputs: Any = None, external_functions: Any = None) -> Any:
        program = json.loads(code)
        calls = (external_functions["call_tool"](name, arguments) for name, arguments in program["calls"])
        if program.get("at_once"):
            return [str(each) for each in await asyncio.gather(*calls, return_exceptions=True)]
        return [str(await each) for each in calls]


def make_weather(*transforms: Any) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Seller", transforms=transforms)

    @mcp.tool(meta=route("POST /v1/stall/forecast") | access(price="0.01"))
    async def forecast(city: str, caller: Caller = CurrentCaller()) -> str:
        """The weather of tomorrow in a city."""
        return f"{SECRET} {city} {caller.payer or (caller.key and caller.key.product)}"

    @mcp.tool(meta=free())
    async def today(city: str, caller: Caller = CurrentCaller()) -> str:
        """The weather of today in a city."""
        await asyncio.sleep(0)
        return f"rain in {city} {caller.payer}"

    @mcp.tool(meta=access())
    async def both(city: str, ctx: Context) -> str:
        """The weather of both days, found by the server's own search."""
        return str((await ctx.fastmcp.call_tool("call_tool", {"name": "forecast", "arguments": {"city": city}})).structured_content)

    return mcp


async def search(campus: TestCampus, tool: str, arguments: Any, *, key: str | None = None, meta: Any = None) -> Any:
    async with campus.mcp(headers={"Authorization": f"Bearer {key}"} if key else {}) as client:
        return await client.call_tool(tool, arguments, meta=meta, raise_on_error=False)


FORECAST = {"name": "forecast", "arguments": {"city": "Rome"}}


async def test_twins_pages_and_prices_are_those_of_the_real_tools_and_mcp_lists_those_that_search() -> None:
    async with open_campus(stall=make_weather(BM25SearchTransform(always_visible=["today"]))) as campus:
        opened = campus.service.plan.opened[0]
        assert list(opened.operations) == list(opened.offers) == ["forecast", "today", "both"]
        assert "/v1/stall/forecast" in (await campus.http.get("/stall/openapi.json")).json()["paths"]
        assert SECRET in (await campus.http.post("/v1/stall/forecast", json={"city": "Rome"}, headers=await bearer(campus))).text
        assert (await campus.http.get("/tools/stall/forecast")).status_code == 200
        async with campus.mcp() as client:
            assert [tool.name for tool in await client.list_tools()] == ["today", "search_tools", "call_tool"]
            found = str((await client.call_tool("search_tools", {"query": "tomorrow"})).content)
        assert "forecast" in found
        assert "Needs a key of scope stall" in found


async def bearer(campus: TestCampus) -> dict[str, str]:
    return {"Authorization": f"Bearer {await campus.key('stall')}"}


async def test_a_call_by_search_is_admitted_as_the_tool_that_it_reaches() -> None:
    async with open_campus(stall=make_weather(BM25SearchTransform())) as campus:
        key = await campus.key("stall")
        assert f"{SECRET} Rome stall" in str(await search(campus, "call_tool", FORECAST, key=key))
        refused = await search(campus, "call_tool", FORECAST)
        assert refused.is_error
        assert refused.structured_content["code"] == "access_required"
        wrong = await search(campus, "call_tool", {"name": "forecast", "arguments": {"town": "Rome"}}, key=key)
        assert wrong.structured_content["code"] == "invalid_request"
        assert "rain in Rome None" in str(await search(campus, "call_tool", {"name": "today", "arguments": {"city": "Rome"}}))
        assert (await search(campus, "call_tool", {"name": "absent", "arguments": {}}, key=key)).is_error
        assert SECRET in str(await search(campus, "both", {"city": "Rome"}, key=key)), "a call inside an admitted one"
        page = (await campus.admin().get("/metrics")).text
        assert 'route="stall:call_tool"' in page


async def test_each_call_of_a_program_is_admitted_on_its_own_also_when_they_run_at_once() -> None:
    async with open_campus(stall=make_weather(CodeMode(sandbox_provider=Sandbox()))) as campus:
        calls = [["today", {"city": "Rome"}], ["forecast", {"city": "Rome"}], ["today", {"city": "Oslo"}], ["forecast", {"city": "Oslo"}]]
        for at_once in (True, False):
            program = json.dumps({"calls": calls, "at_once": at_once})
            free_rider = str(await search(campus, "execute", {"code": program}))
            assert SECRET not in free_rider
            assert "forecast is not free" in free_rider
            opened = str(await search(campus, "execute", {"code": program}, key=await campus.key("stall")))
            assert opened.count(SECRET) >= 2


async def test_a_call_by_search_or_in_a_program_is_paid_as_the_tool_that_it_reaches_and_brings_its_receipt() -> None:
    program = {"code": json.dumps({"calls": [["today", {"city": "Rome"}], ["forecast", {"city": "Rome"}]]})}
    for transform, tool, arguments in (
        (BM25SearchTransform(), "call_tool", FORECAST),
        (CodeMode(sandbox_provider=Sandbox()), "execute", program),
    ):
        async with open_paid_campus(Building(make_weather(transform))) as paid_campus:
            async with paid_campus.mcp() as client:
                unpaid = await client.call_tool("forecast", {"city": "Rome"}, raise_on_error=False)
            payment = {"x402/payment": paid_campus.payer.payload(unpaid.structured_content or {})}
            paid = await search(paid_campus.campus, tool, arguments, meta=payment)
            assert SECRET in str(paid.content)
            assert paid_campus.payer.wallet.address.lower() in str(paid.content).lower()
            assert "rain in Rome None" in str(paid.content) or tool == "call_tool", "the free call is not the payer's"
            assert (paid.meta or {})["x402/payment-response"]["success"] is True
            assert await paid_campus.earned() == 10_000


class Hides(CatalogTransform):
    """Lists fewer tools, and none of its own."""

    async def transform_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return [tool for tool in tools if tool.name != "both"]


async def test_a_transform_that_only_hides_tools_hides_their_twins_too() -> None:
    async with open_campus(stall=make_weather(Hides())) as campus:
        assert list(campus.service.plan.opened[0].operations) == ["forecast", "today"]
        assert (await search(campus, "both", {"city": "Rome"}, key=await campus.key("stall"))).is_error


async def test_what_search_would_hide_from_the_prices_is_refused_with_a_sentence() -> None:
    around: FastMCP[Any] = FastMCP("Around")
    around.mount(make_weather(BM25SearchTransform()), namespace="inner")
    with pytest.raises(LoadError, match="mounted in the server of building 'stall' has tool search or code mode"):
        async with open_campus(stall=around):
            pass
    with pytest.raises(ConfigError, match="call_tool is a tool of tool search"):
        async with open_campus(stall=make_weather(BM25SearchTransform()), tools={"call_tool": {"price": "1"}}):
            pass
