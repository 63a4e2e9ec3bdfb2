"""No route or tool returns paid content without access, by any method or odd spelling of its path."""

from collections.abc import Iterable

import anyio
import httpx
import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from service.conftest import SENTINEL
from starlette.types import ASGIApp

import twins
from campus import Building
from campus.testing import ORIGIN, TestCampus
from tests import patient

pytestmark = pytest.mark.anyio
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "PROPFIND")
PAID = ("/v1/shop/text", "/v1/shop/plain", "/v1/shop/crash")
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Authorization": "Bearer "},
    {"Authorization": "Bearer campus_live_" + "a" * 38},
    {"Authorization": "Basic YTpi"},
    {"X-Forwarded-For": "127.0.0.1", "X-Original-URL": "/v1/shop/sample"},
    {"X-HTTP-Method-Override": "GET"},
    {"Origin": "https://evil.example"},
)


def spellings(path: str) -> Iterable[str]:
    yield from (path, path + "/", "/" + path, path.replace("/", "//"), path.upper(), path + "?", path + "#x", path + ";a=b", path + "%00")
    yield from (path.replace("/", "%2F"), path.replace("/v1/", "/v1/./"), path.replace("/v1/", "/v1/x/../"), path.replace("t", "%74"))


async def leaks_over_http(app: ASGIApp, paths: Iterable[str]) -> list[str]:
    found = []
    async with patient.AsyncClient(transport=httpx.ASGITransport(app), base_url=ORIGIN) as client:
        for path in paths:
            for spelling in spellings(path):
                for method in METHODS:
                    headers = HEADERS if spelling == path else HEADERS[:1]
                    for sent in headers:
                        body = {"text": "x", "words": ["a"]} if method in ("POST", "PUT", "PATCH") else None
                        query = "" if body or "?" in spelling or "words" in spelling else "?words=a" if path.endswith("plain") else ""
                        answer = await client.request(method, httpx.URL(ORIGIN + spelling + query), json=body, headers=sent)
                        assert answer.status_code < 500, (method, spelling, answer.text)
                        ran_unseen = method == "HEAD" and answer.status_code == 200 and path.startswith(PAID)
                        if SENTINEL in answer.text or ran_unseen:
                            found.append(f"{method} {spelling}")
    return found


async def leaks_over_mcp(app: ASGIApp, path: str, tools: Iterable[str]) -> list[str]:
    found = []
    transport = StreamableHttpTransport(
        ORIGIN + path, httpx_client_factory=lambda **options: httpx2.AsyncClient(**options | {"transport": httpx2.ASGITransport(app)})
    )
    for mode in ("auto", "legacy"):
        async with Client(transport, mode=mode) as client:
            for tool in {*tools, *(one.name for one in await client.list_tools())}:
                for arguments in ({"day": "2026-01-02"}, {"text": "x"}, {"words": ["a"]}, {}):
                    result = await client.call_tool(tool, arguments, raise_on_error=False)
                    if SENTINEL in str(result):
                        found.append(f"{mode} {tool}")
    return found


async def test_no_route_and_no_tool_returns_paid_content_without_access(open_shop: TestCampus) -> None:
    operations = next(one for one in open_shop.service.plan.opened if one.name == "shop").operations.values()
    paths = {operation.path.replace("{day}", "2026-01-02") for operation in operations}
    assert len(paths) >= 5
    own = {"/v1/shop", "/shop/mcp", "/shop/openapi.json", "/v1/openapi.json", "/v1/shop/pages/x", "/metrics", "/readyz", "/register"}
    assert await leaks_over_http(open_shop.app, sorted(paths | own)) == []
    assert await leaks_over_mcp(open_shop.app, "/shop/mcp", [operation.name for operation in operations]) == []


async def test_the_walk_notices_when_the_gate_is_gone(shop: Building) -> None:
    app = twins.attach(shop.server, name="shop")  # type: ignore[arg-type]  # a server, not a factory
    async with app.router.lifespan_context(app), anyio.create_task_group():
        assert "GET /v1/shop/text/2026-01-02" in await leaks_over_http(app, ["/v1/shop/text/2026-01-02", "/v1/shop/text"])
        assert await leaks_over_mcp(app, "/mcp", []) != []


async def test_a_listing_shows_no_more_than_the_free_tools_would(open_shop: TestCampus) -> None:
    tools = (await open_shop.http.get("/v1/shop")).json()["tools"]
    assert {tool["name"]: tool["tier"] for tool in tools} == {
        **{"sample": "free", "whoami": "free, and more with a key"},
        **dict.fromkeys(("text_of", "write_text", "plain", "crash"), "key"),
    }
    assert {tool["price"] for tool in tools} == {None}  # no payments are accepted here
