"""A building whose tools are free, need a key, or cost $0.02; one fails when it is told to, one waits."""

from dataclasses import dataclass, field
from typing import Any

import anyio
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError

from campus import access, free, route


@dataclass
class Dice:
    """What its tools did, and what they wait for."""

    rolled: int = 0
    waits: anyio.Event = field(default_factory=anyio.Event)
    is_called: anyio.Event = field(default_factory=anyio.Event)

    def server(self) -> FastMCP[Any]:
        mcp: FastMCP[Any] = FastMCP("Dice")

        def look() -> str:
            """Look."""
            return "six"

        def roll(fails: bool = False) -> str:
            """Roll."""
            self.rolled += 1
            if fails:
                raise ToolError("it fell off the table")
            return f"roll {self.rolled}"

        async def spin() -> str:
            """Spin until somebody stops it."""
            self.is_called.set()
            await self.waits.wait()
            return "seven"

        for tool, offer in ((look, free()), (roll, access(price="0.02")), (spin, access(price="0.02"))):
            mcp.tool(tool, annotations={"readOnlyHint": True}, meta=route(f"GET /v1/dice/{tool.__name__}") | offer)
        mcp.tool(look, name="own", annotations={"readOnlyHint": True}, meta=route("GET /v1/dice/own") | access())
        return mcp
