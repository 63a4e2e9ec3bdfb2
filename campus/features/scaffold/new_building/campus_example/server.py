"""The building's tools, each served over MCP and over HTTP; its job and its page."""

from datetime import datetime
from secrets import randbelow
from typing import Annotated

from campus import CurrentSite, Problem, Request, Response, Settings, Site, access, free, route
from fastmcp import FastMCP
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import col, select

from campus_example.tables import Draw

READ_ONLY = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}

mcp = FastMCP(
    "Example",
    instructions="Draws a number each hour: latest returns the newest, history the numbers before it.",
    on_duplicate="error",
)


class Options(Settings):
    """The keys of [buildings.example] in campus.toml."""

    highest: int = Field(default=100, ge=1)


class Drawn(BaseModel):
    """A number."""

    model_config = ConfigDict(frozen=True)

    at: datetime = Field(description="When it was drawn (UTC).")
    number: int = Field(description="The number.")


class History(BaseModel):
    """Several numbers."""

    model_config = ConfigDict(frozen=True)

    numbers: tuple[Drawn, ...] = Field(description="The numbers, the newest first.")


@mcp.tool(title="Newest number", annotations=READ_ONLY, meta=free())
async def latest(site: Site[Options] = CurrentSite()) -> Drawn:
    """Return the number that was drawn last. history returns those before it."""
    if not (found := await newest(site, 1)):
        raise Problem(404, "nothing_drawn", "no number was drawn yet; try again in a minute")
    return found[0]


@mcp.tool(title="Past numbers", annotations=READ_ONLY, meta=route("GET /v1/example/history") | access(price="0.01"))
async def history(
    limit: Annotated[int, Field(ge=1, le=100, description="How many numbers to return, 1 to 100.")] = 20,
    site: Site[Options] = CurrentSite(),
) -> History:
    """Return the numbers that were drawn, the newest first. Use it to compare; for the newest alone, latest is free."""
    return History(numbers=await newest(site, limit))


async def newest(site: Site[Options], limit: int) -> tuple[Drawn, ...]:
    """The numbers that were drawn last, the newest first."""
    async with site.storage.read() as session:
        rows = (await session.exec(select(Draw).order_by(col(Draw.at).desc()).limit(limit))).all()
    return tuple(Drawn(at=row.at, number=row.number) for row in rows)


async def draw(site: Site[Options]) -> None:
    """The job: draw a number. By hand: campus run example.draw."""
    async with site.storage.write() as session:
        session.add(Draw(at=site.now(), number=randbelow(site.settings.highest) + 1))
    site.count("draws")


async def board(request: Request, site: Site[Options]) -> Response:
    """The page."""
    numbers = await newest(site, 10)
    return site.page("example.html", request, data={"numbers": numbers}, numbers=numbers)
