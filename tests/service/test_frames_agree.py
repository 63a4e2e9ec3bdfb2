"""`TestCampus.call` returns the same over HTTP and MCP: arguments, timeouts, unknown tools."""

from dataclasses import replace
from datetime import date
from typing import Any

import anyio
import pytest
from fastmcp import FastMCP
from service.conftest import FRAMES

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


async def test_a_call_returns_the_same_over_both_frames() -> None:
    async with open_campus(tides=tools()) as campus:
        for frame in FRAMES:
            over = replace(campus, frame=frame)
            for port in ("Brest", "a?b", "a#b", "a%20b", "ä ö"):
                assert (await over.call("tide", port=port, day=None)).data == f"{port} None"
            assert (await over.call("tide", port="x", day="2026-08-21")).data == "x 2026-08-21"
            late = await over.call("stand_still")
            assert (late.status, late.code, late.data["detail"]) == (504, "timeout", "the tool did not answer within 0.05 seconds")
        with pytest.raises(LookupError, match="has no tool 'ebb'; its tools are: tide, stand_still"):
            await campus.call("ebb")
