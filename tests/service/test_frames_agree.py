"""`TestCampus.call` returns the same over HTTP and MCP: arguments, timeouts, unknown tools."""

from datetime import date
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP

from campus import route
from campus.testing import open_campus

pytestmark = pytest.mark.anyio

READS = {"readOnlyHint": True}


def tools() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Tides")

    @mcp.tool(annotations=READS, meta=route("GET /v1/tides/{port}"))
    async def tide(port: str, day: date | None = None) -> str:
        """The tide at a port."""
        return f"{port} {day}"

    @mcp.tool(annotations=READS, timeout=0.05)
    async def stand_still() -> None:
        """Never return."""
        await anyio.sleep_forever()

    return mcp


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_arguments_arrive_as_they_were_given(frame: Any) -> None:
    async with open_campus(frame=frame, tides=tools()) as campus:
        for port in ("Brest", "a?b", "a#b", "a%20b", "ä ö"):
            assert (await campus.call("tide", port=port, day=None)).data == f"{port} None"
        assert (await campus.call("tide", port="x", day="2026-08-21")).data == "x 2026-08-21"


@pytest.mark.parametrize("frame", ["http", "mcp"])
async def test_a_tool_that_takes_too_long_is_answered_with_an_error(frame: Any) -> None:
    async with open_campus(frame=frame, tides=tools()) as campus:
        reply = await campus.call("stand_still")
        assert (reply.status, reply.code, reply.data["detail"]) == (504, "timeout", "the tool did not answer within 0.05 seconds")


async def test_a_tool_that_there_is_not_is_named_with_those_that_there_are() -> None:
    async with open_campus(tides=tools()) as campus:
        with pytest.raises(LookupError, match="has no tool 'ebb'; its tools are: tide, stand_still"):
            await campus.call("ebb")
