"""A building for tests of pages: tools of each tier, a page with a form, a highlight; its texts are those of a hostile author."""

from typing import Annotated, Any, Literal

from fastmcp import FastMCP
from pages.hostile import ALL_AT_ONCE
from pydantic import BaseModel, ConfigDict, Field

from campus import Building, Page, Request, Response, Site, access, free

READ_ONLY = {"readOnlyHint": True}


class Berth(BaseModel):
    """A berth."""

    model_config = ConfigDict(frozen=True)

    ship: str = Field(description=f"The ship. {ALL_AT_ONCE}")
    length: float | None = Field(default=None, description="Metres.")


def make_harbour(name: str = "Harbour") -> Building:
    mcp = FastMCP(name, instructions=f"Berths of a harbour. {ALL_AT_ONCE}")

    @mcp.tool(title=f"Find a ship {ALL_AT_ONCE}", annotations=READ_ONLY, meta=free())
    async def find(
        ship: Annotated[str, Field(description=f"Its name. {ALL_AT_ONCE}", examples=[ALL_AT_ONCE])],
        side: Literal["port", "starboard"] = "port",
        length: float | None = None,
        deep: bool = False,
        tags: list[str] | None = None,
    ) -> Berth:
        """Find the berth of a ship."""
        return Berth(ship=f"{ship} {side} {deep} {tags}", length=length)

    @mcp.tool(annotations=READ_ONLY, meta=access(price="0.02"))
    async def secret_berth() -> Berth:
        """The berth that is paid for."""
        return Berth(ship="paid-for-and-delivered")

    @mcp.tool(meta=access())
    async def moor(ship: str) -> Berth:
        """Moor a ship."""
        return Berth(ship=f"moored {ship}")

    async def log(request: Request, site: Site[Any, Any]) -> Response:
        caller = await site.caller(request)
        if request.method == "POST":
            return Response("logged", media_type="text/plain")
        return site.page("log.html", request, data={"key": caller.key and caller.key.product}, said=ALL_AT_ONCE, key=caller.key)

    async def paid(request: Request, site: Site[Any, Any]) -> Response:
        caller = await site.admit(request, "secret_berth")
        return site.page("log.html", request, said="paid-for-and-delivered", key=caller.key)

    async def hook(request: Request, site: Site[Any, Any]) -> Response:
        return Response("hooked", media_type="text/plain")

    async def sink(request: Request, site: Site[Any, Any]) -> Response:
        raise RuntimeError("secret-of-the-sinking")

    async def highlight(request: Request, site: Site[Any, Any]) -> str:
        return site.part("highlight.html", said=ALL_AT_ONCE)

    pages = [
        Page("GET|POST /log", log, label=ALL_AT_ONCE),
        Page("GET /paid", paid),
        Page("GET /sink", sink),
        Page("POST /hook", hook, cross_site=True),
    ]
    return Building(mcp, pages=pages, highlight=highlight)
