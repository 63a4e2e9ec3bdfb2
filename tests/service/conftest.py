"""The shop, a building with one tool of every tier, for tests of both frames; open once for all tests of a file that only ask it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Literal

import pytest
from fastmcp import FastMCP
from pydantic import BaseModel, ConfigDict

from campus import Building, Caller, Check, CurrentCaller, CurrentSite, Page, Problem, Request, Response, Site, access, free, route
from campus.testing import Frame, TestCampus, open_campus

SENTINEL = "paid-for-and-delivered"
FRAMES: tuple[Frame, ...] = ("http", "mcp")
UNLIMITED = {"limits": dict.fromkeys(("free", "keyed", "unpaid"), "off")}
"""For a campus that answers the calls of many tests while its clock stands still."""


@pytest.fixture(scope="module")
def anyio_backend() -> Literal["asyncio"]:
    """Of the module, as are the campuses that its tests share."""
    return "asyncio"


class Paid(BaseModel):
    """What was paid for."""

    model_config = ConfigDict(frozen=True)

    text: str
    day: date | None = None


def make_shop() -> Building:
    mcp = FastMCP("Shop", instructions="Sells a sentence.")
    read_only = {"readOnlyHint": True}

    @mcp.tool(annotations=read_only, meta=route("/v1/shop/sample") | free())
    async def sample() -> Paid:
        """A free sample."""
        return Paid(text="free")

    @mcp.tool(annotations=read_only, meta=route("/v1/shop/text/{day}") | access(price="0.02"))
    async def text_of(day: date) -> Paid:
        """The sentence of a day."""
        if day.year < 2000:
            raise Problem(404, "no_text", "there is no text of that day")
        return Paid(text=SENTINEL, day=day)

    @mcp.tool(meta=route("POST /v1/shop/text") | access())
    async def write_text(text: str, count: int = 1) -> Paid:
        """Write a sentence; with a key only."""
        return Paid(text=SENTINEL + text * count)

    @mcp.tool(meta=access(key="optional"))
    async def whoami(caller: Caller = CurrentCaller(), site: Site[Any, Any] = CurrentSite()) -> dict[str, str]:
        """The caller, its key and its frame."""
        return {"key": caller.key.product if caller.key else "", "frame": caller.frame, "site": site.name}

    @mcp.tool(annotations=read_only, meta=access(price="0.01"))
    def plain(words: list[str]) -> list[str]:
        """A sync tool with a list in and out."""
        return [SENTINEL, *words]

    @mcp.tool(meta=access(price="0.01"))
    async def crash() -> str:
        """Fails."""
        raise RuntimeError("secret-of-the-crash")

    async def page(request: Request, site: Site[Any, Any]) -> Response:
        return Response(f"page of {site.name} for {request.path_params['name']}")

    async def stock(site: Site[Any, Any]) -> Sequence[str]:
        return ["the shop is empty; fill it"]

    return Building(mcp, pages=[Page("GET /v1/shop/pages/{name}", page)], checks=[Check(stock, on="check")])


def shop_named(name: str) -> Building:
    mcp = FastMCP(name)

    @mcp.tool(meta=route(f"GET /v1/{name}/text/{{day}}") | access(price="0.02"))
    async def text_of(day: str) -> str:
        """The sentence of a day."""
        return SENTINEL

    return Building(mcp)


@pytest.fixture
def shop() -> Building:
    return make_shop()


@pytest.fixture(scope="module")
async def open_shop() -> AsyncIterator[TestCampus]:
    """The shop and another one."""
    async with open_campus(shop=make_shop(), other=shop_named("other"), tables=UNLIMITED) as campus:
        yield campus


@pytest.fixture
def framed_shop(open_shop: TestCampus, frame: Frame) -> TestCampus:
    """The same over HTTP, and over MCP."""
    return replace(open_shop, frame=frame)
