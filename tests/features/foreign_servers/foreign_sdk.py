"""A server of the mcp SDK itself, with a state and with every kind of failure: `python foreign_sdk.py` serves it on stdio."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

STARTS = Path(__file__).with_name("starts")
READ_ONLY = ToolAnnotations(read_only_hint=True)


class Level(BaseModel):
    """The level of a river."""

    station: str = Field(description="Where it was measured.")
    metres: float


@dataclass
class State:
    """What the lifespan made."""

    calls: int = 0


@asynccontextmanager
async def lifespan(_: MCPServer[State]) -> AsyncIterator[State]:
    with STARTS.open("a") as file:
        file.write("started\n")
    yield State()


def make(river: str = "Rhine", *, harbours: int = 2) -> MCPServer[State]:
    server: MCPServer[State] = MCPServer("Rivers", instructions=f"Levels of the {river}.", version="7.1", lifespan=lifespan)

    @server.tool(title="Level", annotations=READ_ONLY)
    def level(station: str) -> Level:
        """The level at a station."""
        return Level(station=f"{station} ({river})", metres=2.5)

    @server.tool(annotations=READ_ONLY, structured_output=False)
    async def picture() -> Image:
        """One pixel."""
        return Image(data=base64.b64decode("R0lGODlhAQABAAAAACw="), format="gif")

    @server.tool(annotations=READ_ONLY)
    async def calls(ctx: Context[State, Any]) -> int:
        """How often it was called since the start."""
        await ctx.report_progress(1, 2)
        ctx.request_context.lifespan_context.calls += 1
        return ctx.request_context.lifespan_context.calls

    @server.tool(annotations=READ_ONLY)
    def fail(how: str) -> str:
        """Fail in one of three ways."""
        if how == "refused":
            raise ToolError("no such river")
        if how == "protocol":
            raise MCPError(code=7, message="the gauge is frozen")
        raise RuntimeError("the password is hunter2")

    return server


mcp = make()

if __name__ == "__main__":
    mcp.run("stdio")
