"""Output schemas as listed: results and refusals fit, anything else does not."""

from typing import Any

import jsonschema
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StreamableHttpTransport
from jsonschema import Draft202012Validator as Validator

from campus import Building, Problem
from campus.paywall.mcp import with_refusals
from campus.testing import open_campus

pytestmark = pytest.mark.anyio
STRICT = {
    "type": "object",
    "properties": {"status": {"type": "string"}, "rank": {"type": "integer"}},
    "required": ["status", "rank"],
    "additionalProperties": False,
    "oneOf": [{"properties": {"rank": {"const": 1}}}, {"properties": {"rank": {"const": 2}}}],
}


def test_a_result_and_a_refusal_fit_and_nothing_else() -> None:
    listed = Validator(with_refusals(STRICT))
    assert listed.is_valid({"status": "fine", "rank": 2})
    assert listed.is_valid(Problem(402, "access_required", "pay").body("/errors/", request_id="x"))
    assert not listed.is_valid({"status": "fine", "rank": 3})
    assert not listed.is_valid({"status": "fine"})
    assert not listed.is_valid({"status": "fine", "rank": "second"})


async def test_every_refusal_fits_the_schema_that_its_tool_lists(shop: Building) -> None:
    async with open_campus(frame="mcp", shop=shop) as campus:
        transport = StreamableHttpTransport("http://campus.test/shop/mcp", httpx_client_factory=campus._client)
        async with Client(transport) as client:
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
