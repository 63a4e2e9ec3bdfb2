"""A FastMCP server with many kinds of tools, and clients of both frames: HTTP to its twins, MCP with fastmcp's client."""

import datetime
import enum
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import httpx
import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.dependencies import CurrentHeaders, Depends
from fastmcp.tools.base import ToolResult
from pydantic import BaseModel, Field
from starlette.applications import Starlette

from tests import patient
from twins import attach


@dataclass
class Fronts:
    """A running server: `http` reaches its twins, `mcp` its tools."""

    app: Starlette
    http: httpx.AsyncClient
    mcp: Client[Any]

    async def over_mcp(self, tool: str, /, **arguments: Any) -> Any:
        result = await self.mcp.call_tool_mcp(tool, arguments)
        return None if result.is_error else result.structured_content


@asynccontextmanager
async def open_fronts(server: FastMCP[Any]) -> AsyncIterator[Fronts]:
    app = attach(server)
    transport = httpx.ASGITransport(app, raise_app_exceptions=True)
    async with (
        app.router.lifespan_context(app),
        patient.AsyncClient(transport=transport, base_url="http://test") as http,
        Client(server) as mcp,
    ):
        yield Fronts(app, http, mcp)


@pytest.fixture(scope="session")
def fronts() -> Callable[[FastMCP[Any]], AbstractAsyncContextManager[Fronts]]:
    return open_fronts


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: int
    y: float = 0.0
    label: str | None = None


@dataclass
class Box:
    width: int
    corner: Point


class Report(BaseModel):
    """What was understood."""

    day: datetime.date
    at: datetime.datetime | None = None
    color: Color
    level: Level
    price: Decimal
    point: Point
    points: tuple[Point, ...] = ()
    ratio: float = Field(default=0.5, ge=0, le=1, description="Between 0 and 1.")


@contextmanager
def database() -> Iterator[str]:
    yield "database"


def stranger_server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Not ours", instructions="Odds and ends.")

    @mcp.tool(annotations={"readOnlyHint": True})
    async def add(a: int, b: int = 2) -> int:
        """Add two numbers.

        Args:
            a: The first one.
        """
        return a + b

    @mcp.tool
    async def greet(
        name: str,
        ctx: Context,
        headers: dict[str, str] = CurrentHeaders(),  # noqa: B008  # FastMCP's way of injecting
        db: str = Depends(database),
    ) -> dict[str, Any]:
        """Greet, with everything that FastMCP can inject."""
        await ctx.info("greeting", extra={"name": "x"})
        await ctx.report_progress(1, 2)
        await ctx.set_state("name", name)
        kept = await ctx.get_state("name")
        return {"greeting": f"hello {kept}", "db": db, "agent": headers.get("x-agent"), "has_id": bool(ctx.request_id)}

    @mcp.tool
    def count(until: int) -> Iterator[int]:
        """Count, lazily."""
        yield from range(until)

    @mcp.tool
    async def count_async(until: int) -> AsyncIterator[int]:
        """Count, lazily and asynchronously."""
        for number in range(until):
            yield number

    @mcp.tool(annotations={"readOnlyHint": True})
    def report(
        day: datetime.date,
        color: Color,
        level: Level = Level.LOW,
        price: Decimal = Decimal("1.50"),
        at: datetime.datetime | None = None,
        mode: Literal["fast", "slow"] = "fast",
    ) -> Report:
        """Say what was understood."""
        return Report(day=day, color=color, level=level, price=price, at=at, point=Point(x=1), points=(Point(x=2),))

    @mcp.tool(annotations={"readOnlyHint": True})
    def gather(
        numbers: list[int],
        words: set[str] | None = None,
        either: int | str = 0,
        pair: tuple[int, str] | None = None,
        point: Point | None = None,
        boxes: list[Box] | None = None,
        flag: bool = False,
        ratio: Annotated[float, Field(ge=0, le=1)] = 0.5,
    ) -> dict[str, Any]:
        """Take many kinds of arguments."""
        box = [each.width for each in boxes or ()]
        return {
            "numbers": numbers,
            "words": sorted(words or ()),
            "either": either,
            "pair": pair,
            "point": point,
            "boxes": box,
            "f": (flag, ratio),
        }

    @mcp.tool
    def untyped(value):  # type: ignore[no-untyped-def]  # its author does not type
        return value

    @mcp.tool
    def picture() -> ToolResult:
        """A result of content only."""
        return ToolResult(content="a picture")

    @mcp.tool
    def nothing() -> None:
        """Do something, say nothing."""

    return mcp


@pytest.fixture
def stranger() -> FastMCP[Any]:
    return stranger_server()
