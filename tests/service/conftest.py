"""The shop, a building with one tool of every tier, for tests of both frames."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest
from fastmcp import FastMCP
from pydantic import BaseModel, ConfigDict

from campus import Building, Caller, Check, CurrentCaller, CurrentSite, Page, Problem, Request, Response, Site, access, free, route

SENTINEL = "paid-for-and-delivered"


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


@pytest.fixture
def shop() -> Building:
    return make_shop()
