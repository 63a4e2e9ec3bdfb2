"""What a body may cost: its bytes and values are bounded before anything parses it, over HTTP and MCP, whichever way answers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastmcp import FastMCP

from tests import patient
from twins import attach, operations_of, route

pytestmark = pytest.mark.anyio
USUAL = 64 * 1024
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
QUOTED = json.dumps([{"id": "CVE-2021-44228", "in": 'a "b"'}] * 5_000)
"""A text full of what separates values, none of which is one."""


def readers() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Readers")

    @mcp.tool(meta=route("POST /note"))
    async def note(text: Any) -> int:
        return len(text)

    @mcp.tool(meta=route("POST /report", body_limit=1 << 20))
    async def report(text: Any) -> int:
        return len(text)

    return mcp


def called(tool: str, text: str) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%b","arguments":{"text":%b}}}' % (tool.encode(), text.encode())


async def parts(body: bytes) -> AsyncIterator[bytes]:
    yield body[:1000]
    yield body[1000:]


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
@pytest.mark.parametrize("mode", ["on", "off"])
async def test_only_a_tool_that_declares_it_takes_more_than_64_kib_and_none_takes_too_many_values(mode: Any, chunked: bool) -> None:
    app = attach(readers(), stateless=True, direct_mcp=mode)
    async with (
        app.router.lifespan_context(app),
        patient.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=HEADERS) as http,
    ):

        async def post(path: str, body: bytes) -> httpx.Response:
            return await http.post(path, content=parts(body) if chunked else body)

        long = json.dumps("x" * USUAL)
        for tool, text, is_taken in (
            ("note", json.dumps("x" * 60_000), True),
            ("note", long, False),
            ("note", f"[{'{},' * 4_000}0]", True),
            ("note", f"[{'{},' * 20_000}0]", False),
            ("note", "[" * 60_000, False),
            ("report", long, True),
            ("report", json.dumps(QUOTED), True),
            ("report", f"[{'{},' * 300_000}0]", False),
            ("report", json.dumps([""] * 200_000), False),
            ("report", json.dumps("x" * (1 << 20)), False),
        ):
            about = tool, text[:20], len(text)
            over_http = await post(f"/{tool}", b'{"text":%b}' % text.encode())
            over_mcp = await post("/mcp", called(tool, text))
            if is_taken:
                assert over_http.json() == {"result": len(json.loads(text))}, about
                assert over_mcp.status_code == 200, about
                assert f'"structuredContent":{{"result":{len(json.loads(text))}}}' in over_mcp.text, about
            else:
                assert (over_http.status_code, over_http.json()["code"]) == (413, "too_large"), about
                refused = over_mcp.json()
                assert (over_mcp.status_code, refused["jsonrpc"], refused["id"], refused["error"]["code"]) == (413, "2.0", None, -32600), (
                    about
                )
                assert refused["error"]["message"].endswith(("send less.", "send fewer.")), about


@pytest.mark.parametrize("limit", [0, "1 MiB", True])
async def test_a_limit_that_is_no_number_of_bytes_is_refused_at_the_start(limit: Any) -> None:
    mcp: FastMCP[Any] = FastMCP("Readers")

    @mcp.tool(meta=route("POST /note", body_limit=limit))
    async def note(text: str) -> str:
        return text

    with pytest.raises(ValueError, match=r"tool 'note': the body limit .* is not a number of bytes"):
        await operations_of(mcp)
