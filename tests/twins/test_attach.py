"""One line for any FastMCP server, on a real socket: its MCP endpoint, its twins, its document."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from fastmcp import Client, FastMCP
from listening import listening
from mcp_oracle import ANSWERED_BY, MODERN, request_of
from starlette.applications import Starlette
from starlette.routing import Mount

from tests import patient
from twins import attach, route

pytestmark = pytest.mark.anyio


async def test_any_fastmcp_server_is_served_over_http_and_mcp(stranger: FastMCP[Any]) -> None:
    async with listening(attach(stranger)) as base, patient.AsyncClient(base_url=base) as http, Client(f"{base}/mcp") as mcp:
        over_http = await http.get("/v1/not-ours/report", params={"day": "2026-08-21", "color": "red", "price": "2.50"})
        over_mcp = await mcp.call_tool_mcp("report", {"day": "2026-08-21", "color": "red", "price": "2.50"})
        assert over_http.json() == over_mcp.structured_content
        gathered = {"numbers": [1, 2], "words": ["b", "a"], "either": "x", "pair": [1, "y"], "boxes": [{"width": 3, "corner": {"x": 1}}]}
        query = {"numbers": ["1", "2"], "words": ["b", "a"], "either": "x", "pair": ["1", "y"], "boxes": '{"width": 3, "corner": {"x": 1}}'}
        over_http = await http.get("/v1/not-ours/gather", params=query)
        assert over_http.json() == (await mcp.call_tool_mcp("gather", gathered)).structured_content


async def test_head_has_no_body_on_the_wire_and_the_connection_stays_usable(stranger: FastMCP[Any]) -> None:
    async with listening(attach(stranger)) as base, patient.AsyncClient(base_url=base) as http:
        for _ in range(3):
            assert (await http.head("/v1/not-ours/add?a=1")).content == b""
            assert (await http.get("/v1/not-ours/add?a=1")).json() == {"result": 3}


async def test_a_body_in_chunks_arrives_whole(stranger: FastMCP[Any]) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for part in (b'{"un', b"til", b'": 3}'):
            yield part
            await anyio.sleep(0.01)

    async with listening(attach(stranger)) as base, patient.AsyncClient(base_url=base) as http:
        answer = await http.post("/v1/not-ours/count", content=chunks(), headers={"Content-Type": "application/json"})
        assert answer.json() == {"result": [0, 1, 2]}


async def test_concurrent_calls_have_contexts_of_their_own(stranger: FastMCP[Any]) -> None:
    async with listening(attach(stranger)) as base, patient.AsyncClient(base_url=base) as http:
        answers: dict[int, Any] = {}

        async def greet(number: int) -> None:
            answer = await http.post("/v1/not-ours/greet", json={"name": str(number)}, headers={"X-Agent": str(number)})
            answers[number] = answer.json()

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(greet, number)
        assert all((each["greeting"], each["agent"]) == (f"hello {number}", str(number)) for number, each in answers.items())
        assert len(answers) == 30


async def test_a_mounted_app_serves_the_same_below_its_path(stranger: FastMCP[Any]) -> None:
    app = attach(stranger, direct_mcp="explain")
    outer = Starlette(routes=[Mount("/tools", app)], lifespan=app.lifespan)
    async with listening(outer) as base, patient.AsyncClient(base_url=base) as http, Client(f"{base}/tools/mcp", mode="auto") as mcp:
        assert (await http.get("/tools/v1/not-ours/add?a=1")).json() == {"result": 3}
        assert (await mcp.call_tool("add", {"a": 1})).data == 3
        document = (await http.get("/tools/openapi.json")).json()
        assert (document["servers"], "/v1/not-ours/add" in document["paths"]) == ([{"url": "/tools"}], True)
        request = request_of("add", MODERN, "tools/call", {"name": "add", "arguments": {"a": 1}})
        assert (await http.post("/tools/mcp", content=request.body, headers=request.headers)).headers[ANSWERED_BY] == "twins"
        assert (await http.get("/v1/not-ours/add?a=1")).status_code == 404


@pytest.mark.parametrize(
    ("path", "words"),
    [("/x/{missing}", "'missing' is not one of its arguments; the arguments are: what"), ("/{what}", "/{what} hides the MCP endpoint")],
)
async def test_a_server_whose_tools_cannot_be_served_does_not_start(path: str, words: str) -> None:
    server: FastMCP[Any] = FastMCP("broken")

    @server.tool(meta=route(f"GET {path}"))
    async def tool(what: str) -> str:
        """A tool."""
        return what

    app = attach(server)
    with pytest.raises(BaseExceptionGroup) as refused:
        async with app.router.lifespan_context(app):
            pytest.fail("it started")
    assert refused.group_contains(ValueError, match=words)
