"""The tools, the job, the service and the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import anyio
from fastmcp import FastMCP
from pydantic import BaseModel, ConfigDict
from sqlmodel import col, select

from campus import Caller, CurrentCaller, CurrentSite, Problem, Request, Response, Settings, Site, access, free, route
from campus_tides.tables import Feed


class TidesSettings(Settings):
    """What campus.toml says."""

    feed_url: str


@dataclass
class Ports:
    """The ports that are known in this process."""

    names: frozenset[str] = frozenset()


class Water(BaseModel):
    """One high or low water."""

    model_config = ConfigDict(frozen=True)

    minute: int
    metres: float


class Tides(BaseModel):
    """One day at one port."""

    model_config = ConfigDict(frozen=True)

    port: str
    day: date
    waters: tuple[Water, ...]


TidesSite = Site[TidesSettings, Ports]
LOOK_SECONDS = 0.2
mcp = FastMCP("Tide tables", instructions="High and low water, by port and day, from the harbour's own list.")


@mcp.tool(annotations={"readOnlyHint": True}, meta=route("/v1/tides/{port}/{day}") | access(price="0.002"))
async def day_of(port: str, day: date, site: TidesSite = CurrentSite()) -> Tides:
    """High and low water at one port on one day, in order of time."""
    async with site.storage.read() as session:
        found = (await session.exec(select(Feed).where(Feed.port == port, Feed.day == day).order_by(col(Feed.minute)))).all()
    if not found:
        raise Problem(404, "no_tides", f"no tides of {port!r} on {day}; there are: {', '.join(sorted(site.state.names)) or 'none yet'}")
    return Tides(port=port, day=day, waters=tuple(Water(minute=one.minute, metres=one.metres) for one in found))


@mcp.tool(annotations={"readOnlyHint": True}, meta=free())
async def ports(site: TidesSite = CurrentSite(), caller: Caller = CurrentCaller()) -> list[str]:
    """The ports that are known."""
    return sorted(site.state.names)


async def refresh(site: TidesSite) -> None:
    page = (await site.feeds.get(site.settings.feed_url)).raise_for_status()
    rows = [Feed.model_validate(row) for row in page.json()]
    async with site.storage.write() as session:
        for row in rows:
            await session.merge(row)
    site.state.names = frozenset(row.port for row in rows)
    site.count("refreshes")


async def follow_ports(site: TidesSite) -> None:
    while True:
        async with site.storage.read() as session:
            site.state.names = frozenset((await session.exec(select(Feed.port).distinct())).all())
        await anyio.sleep(LOOK_SECONDS)


async def board(request: Request, site: TidesSite) -> Response:
    async with site.storage.read() as session:
        found = (await session.exec(select(Feed).where(Feed.port == request.path_params["port"]))).all()
    return Response("\n".join(f"{one.day} {one.minute:4} {one.metres}" for one in found), media_type="text/plain")


async def harbour(request: Request, site: TidesSite) -> Response:
    port = request.path_params["port"]
    if request.method == "POST":
        return Response(f"noted for {port}", media_type="text/plain")
    async with site.storage.read() as session:
        found = (await session.exec(select(Feed).where(Feed.port == port).order_by(col(Feed.minute)))).all()
    if not found:
        raise Problem(404, "no_tides", f"no tides of {port!r}")
    waters = tuple(Water(minute=one.minute, metres=one.metres) for one in found)
    return site.page("board.html", request, data={"port": port, "waters": waters}, port=port, waters=waters)


async def has_ports(site: TidesSite) -> Sequence[str]:
    return [] if site.state.names else ["no port is known yet; run the job: campus run tides.refresh"]
