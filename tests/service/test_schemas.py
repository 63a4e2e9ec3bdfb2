"""Output schemas as listed: results and refusals fit, anything else does not, and each description of a member is said once."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

import jsonschema
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.json_schema import dereference_refs
from jsonschema import Draft202012Validator as Validator
from mcp_oracle import LEGACY, MODERN, request_of

from buildings.cve.building import building as cve
from buildings.recorder import building as recorder
from campus import Building, Problem
from campus.paywall.listing import with_refusals
from campus.testing import ORIGIN, TestCampus, open_campus
from twins import RAW_RESULTS, raw_result

pytestmark = pytest.mark.anyio
WORDS = ("description", "examples")
MOST_BYTES = {"cve": 118_000, "recorder": 60_000}
"""Of a list of tools. Hosts load it at each start, and some show it to the model."""
STRICT = {
    "type": "object",
    "properties": {"status": {"type": "string"}, "rank": {"type": "integer"}},
    "required": ["status", "rank"],
    "additionalProperties": False,
    "oneOf": [{"properties": {"rank": {"const": 1}}}, {"properties": {"rank": {"const": 2}}}],
}


def test_a_result_and_a_refusal_fit_and_nothing_else() -> None:
    listed = Validator(with_refusals(STRICT) or {})
    assert listed.is_valid({"status": "fine", "rank": 2})
    assert listed.is_valid(Problem(402, "access_required", "pay").body("/errors/", request_id="x"))
    assert not listed.is_valid({"status": "fine", "rank": 3})
    assert not listed.is_valid({"status": "fine"})
    assert not listed.is_valid({"status": "fine", "rank": "second"})


async def test_every_refusal_fits_the_schema_that_its_tool_lists_to_older_clients_and_newer_ones_are_shown_the_tools_own(
    open_shop: TestCampus,
) -> None:
    campus = replace(open_shop, frame="mcp")
    own = {name: tool.output_schema for name, tool in campus.service.plan.opened[0].tools.items()}
    async with campus.mcp() as newer:
        listed = {tool.name: tool.output_schema for tool in await newer.list_tools()}
    assert spelled_out(without_words(listed, names=True)) == without_words(own, names=True)
    transport = StreamableHttpTransport("http://campus.test/shop/mcp", httpx_client_factory=campus._client)
    async with Client(transport, mode="legacy") as client:
        schemas: dict[str, Any] = {tool.name: tool.output_schema for tool in await client.list_tools()}
    for tool, arguments in (("text_of", {"day": "x"}), ("write_text", {}), ("crash", {})):
        for key in (None, "shop"):
            reply = await campus.call(tool, key=key, **arguments)
            assert reply.status >= 400
            if schemas[tool] is not None:
                jsonschema.validate(reply.data, schemas[tool])


async def test_a_tool_without_a_schema_stays_without() -> None:
    mcp: FastMCP[Any] = FastMCP("Plain")

    @mcp.tool(output_schema=None)
    async def plain() -> dict[str, str]:
        """Plain."""
        return {"a": "b"}

    async with open_campus(frame="mcp", plain=Building(mcp)) as campus:
        assert (await campus.call("plain")).status == 200


class Loose(Tool):
    """A tool whose results need not be objects."""

    value: Any

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return raw_result(self.value)


async def test_a_result_that_need_not_be_an_object_fits_what_each_generation_of_clients_is_listed() -> None:
    schema = {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "array"}], "$defs": {"A": {"properties": {"a": {}}, "required": ["a"]}}}
    values: tuple[Any, ...] = ({"a": 1}, *([[1, 2]] if RAW_RESULTS else []))
    tools = [
        Loose(name=f"loose_{place}", parameters={"type": "object", "properties": {}}, output_schema=schema, value=value)
        for place, value in enumerate(values)
    ]
    async with open_campus(loose=Building(FastMCP("loose", tools=tools))) as campus:

        async def answer(version: str, method: str, **params: Any) -> Any:
            request = request_of("", version, method, params)
            response = await campus.http.post("/loose/mcp", content=request.body, headers=dict(request.headers))
            return json.loads(response.text.partition("data:")[2] or response.text)["result"]

        for version in (MODERN, LEGACY):
            for listed in (await answer(version, "tools/list"))["tools"]:
                result = await answer(version, "tools/call", name=listed["name"], arguments={})
                assert ("outputSchema" in listed) is RAW_RESULTS
                assert Validator(listed.get("outputSchema", {})).is_valid(result["structuredContent"]), (version, listed, result)


def members(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for keyword, part in schema.items() if isinstance(schema, Mapping) else ():
        if keyword == "properties":
            yield from part.items()
            for member in part.values():
                yield from members(member)
        elif isinstance(part, Mapping | list):
            for each in part if isinstance(part, list) else [part]:
                yield from members(each)


def without_words(schema: Any, *, names: bool = False) -> Any:
    if isinstance(schema, list):
        return [without_words(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: without_words(value, names=key == "properties" and not names)
        for key, value in schema.items()
        if names or (key not in WORDS and (key, value) != ("default", None))
    }


def spelled_out(schema: Any) -> Any:
    """The schema with an alternative for null, as pydantic writes it."""
    if isinstance(schema, list):
        return [spelled_out(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: spelled_out(value) for key, value in schema.items()}
    if not isinstance(types := schema.get("type"), list):
        return kept
    around = {"default": kept.pop("default")} if "default" in kept else {}
    return {"anyOf": [{**kept, "type": types[0]}, {"type": "null"}]} | around


def described(schema: Any) -> set[tuple[str, str]]:
    return {(name, member["description"]) for name, member in members(schema) if "description" in member}


async def test_a_list_says_each_description_of_a_result_once_and_keeps_every_rule() -> None:
    async with open_campus(cve=cve, recorder=recorder) as campus:
        tools = {one.name: one.tools for one in campus.service.plan.opened}
        lists = {}
        for name in tools:
            async with campus.mcp(name) as client:
                lists[name] = await client.list_tools()
    for name, listed in lists.items():
        said: Counter[tuple[str, str]] = Counter()
        complete: set[tuple[str, str]] = set()
        for tool in listed:
            whole = dereference_refs(tools[name][tool.name].output_schema or {})
            assert spelled_out(without_words(dereference_refs(tool.output_schema or {}))) == without_words(whole)
            said.update((of, member["description"]) for of, member in members(tool.output_schema) if "description" in member)
            complete |= described(whole)
        assert said == dict.fromkeys(complete, 1)
        sent = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed]
        assert len(json.dumps(sent, separators=(",", ":"), ensure_ascii=False).encode()) < MOST_BYTES[name]


async def test_clients_check_and_read_results_whose_schemas_share_parts() -> None:
    async with open_campus(settings={"sample": True}, cve=cve) as campus:
        headers = {"Authorization": f"Bearer {await campus.key('cve')}"}
        transport = StreamableHttpTransport(f"{ORIGIN}/cve/mcp", headers=headers, httpx_client_factory=campus._client)
        for mode in ("auto", "legacy"):
            async with Client(transport, mode=mode) as client:
                listed = {tool.name: tool.output_schema or {} for tool in await client.list_tools()}
                assert listed["top_cves_today"]["$defs"].keys() == {"Feed"}, "what one place refers to is in that place"
                for tool in ("top_cves_today", "next_in_kev", "next_record", "kev_fresh"):
                    found = await client.call_tool(tool)
                    Validator(listed[tool]).validate(found.structured_content)
                    await client.session.call_tool(tool, {})  # mcp's own client compares it with the schema
                    assert isinstance(found.data.day, date)
                brief = (await client.call_tool("top_cves_today")).data
            assert {type(feed.date) for feed in (brief.feeds.kev, brief.feeds.epss)} == {date}
            assert type(brief.feeds.kev) is type(brief.feeds.nvd)
