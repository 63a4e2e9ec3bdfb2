"""A shared link keeps working: parameters that advertising and mailing services add to it are ignored."""

from typing import Any

import httpx
import pytest
from fastmcp import FastMCP

from tests import patient
from twins import Twins, route

pytestmark = pytest.mark.anyio
READS = {"readOnlyHint": True}
SHARED = "utm_source=mail&utm_medium=x&fbclid=abc&gclid=1&msclkid=2&mc_eid=3"


def server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("links")

    @mcp.tool(annotations=READS, meta=route("GET /teaser", cache="public, max-age=300"))
    async def teaser(day: str = "today", gclid: str = "") -> str:
        """A page that is shared."""
        return day + gclid

    @mcp.tool(annotations=READS, meta=route("GET /private"))
    async def private(day: str = "today") -> str:
        """A page that is not kept."""
        return day

    @mcp.tool(meta=route("GET|POST|DELETE /beat", cache="public, max-age=1"))
    async def beat(day: str = "today") -> str:
        """Does something."""
        return day

    return mcp


LINKS = {
    "utm_source=mail": "today",
    "utm_source=mail&utm_source=again&day=monday&fbclid=x": "monday",
    "utm_%73ource=mail": "today",
    "utm_source=%ff%00": "today",
    "fbclid": "today",
    "gclid=7&utm_id=1": "today7",
    "gclid=7": "today7",
}


async def test_tracking_parameters_of_a_link_are_ignored(fronts: Any) -> None:
    async with fronts(server()) as each:
        for query, expected in LINKS.items():
            answer = await each.http.get(f"/teaser?{query}")
            assert (answer.status_code, answer.json()) == (200, {"result": expected}), query
            assert (await each.http.head(f"/teaser?{query}")).status_code == 200
            again = await each.http.get(f"/teaser?{query}", headers={"If-None-Match": answer.headers["etag"]})
            assert again.status_code == 304


async def test_every_other_unknown_name_is_refused(fronts: Any) -> None:
    async with fronts(server()) as each:
        for query in ("ref=x", "utm=x", "UTM_SOURCE=x", "utm_source=mail&dya=monday", "day=%ff&utm_source=x", "xfbclid=1"):
            answer = await each.http.get(f"/teaser?{query}")
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), query
            assert "utm_source" not in answer.json()["detail"]


async def test_only_links_ignore_them(fronts: Any) -> None:
    async with fronts(server()) as each:
        for method, path, status in (("GET", "/private", 422), ("POST", "/beat", 422), ("DELETE", "/beat", 422), ("POST", "/teaser", 405)):
            assert (await each.http.request(method, f"{path}?{SHARED}")).status_code == status, (method, path)


async def test_the_caller_decides_which_addresses_are_links() -> None:
    app = (await Twins.open(server(), is_link=lambda operation: False)).table
    async with patient.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        assert (await http.get("/teaser?utm_source=mail")).status_code == 422
