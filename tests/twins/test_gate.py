"""A gate before every call: it refuses, answers itself, adds headers, and sees how the call ended."""

from typing import Any

import httpx
import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import StaticTokenVerifier
from starlette.types import Receive, Scope, Send

from tests import patient
from twins import Answer, Call, Problem, Twins, route

pytestmark = pytest.mark.anyio


def server(ran: list[Any]) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("gated")

    @mcp.tool(meta=route("GET|POST /paid/{id}", cache="public"), annotations={"readOnlyHint": True})
    async def paid(id: int, fail: bool = False) -> dict[str, int]:
        """Worth its price."""
        ran.append(id)
        if fail:
            raise ToolError("out of stock")
        return {"id": id}

    return mcp


async def client_of(gate: Any, ran: list[Any], **options: Any) -> httpx.AsyncClient:
    table = (await Twins.open(server(ran), gate=gate, **options)).table

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await table({**scope, "request_id": "r-1"}, receive, send)

    return patient.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def closed(call: Call) -> Answer:
    raise Problem(402, "access_required", "a key opens this", headers={"WWW-Authenticate": "Bearer"}, unlock=[{"price": "1"}])


@pytest.mark.parametrize("sent", ["/paid/1", "/paid/one", "/paid/1?unknown=1", "/paid/%00"])
async def test_a_gate_can_refuse_before_the_arguments_are_read(sent: str) -> None:
    ran: list[Any] = []
    async with await client_of(closed, ran, problem_types="/errors/") as http:
        for method in ("GET", "POST", "HEAD"):
            answer = await http.request(method, sent, content=b"{" if method == "POST" else None)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (402, "Bearer")
        assert (await http.get(sent)).json() == {
            "type": "/errors/access_required",
            "title": "Payment Required",
            "status": 402,
            "detail": "a key opens this",
            "code": "access_required",
            "request_id": "r-1",
            "unlock": [{"price": "1"}],
        }
    assert ran == []


async def test_options_and_405_do_not_reach_the_gate() -> None:
    async with await client_of(closed, []) as http:
        assert (await http.options("/paid/1")).status_code == 204
        assert (await http.put("/paid/1")).status_code == 405


async def test_a_gate_sees_the_call_and_its_arguments_and_may_add_headers() -> None:
    seen: list[Any] = []

    async def gate(call: Call) -> Answer:
        seen.append((call.operation.name, call.request.method, await call.arguments()))
        answer = await call.answer()
        return answer.adding({"Payment-Response": "settled"})

    ran: list[Any] = []
    async with await client_of(gate, ran) as http:
        answer = await http.post("/paid/7", json={})
        assert (answer.json(), answer.headers["payment-response"]) == ({"id": 7}, "settled")
    assert seen == [("paid", "POST", {"id": 7, "fail": False})]
    assert ran == [7]


async def test_a_gate_may_return_an_answer_of_its_own() -> None:
    async def replay(call: Call) -> Answer:
        return Answer(200, b'{"stored": true}', ((b"content-type", b"application/json"),))

    ran: list[Any] = []
    async with await client_of(replay, ran) as http:
        answer = await http.get("/paid/7")
        assert (answer.json(), answer.headers["content-length"]) == ({"stored": True}, "16")
    assert ran == []


@pytest.mark.parametrize(("sent", "status"), [("/paid/7?fail=true", 400), ("/paid/x", 422)])
async def test_a_gate_sees_the_error_of_a_call(sent: str, status: int) -> None:
    failed: list[str] = []

    async def gate(call: Call) -> Answer:
        try:
            return await call.answer()
        except Exception as error:
            failed.append(type(error).__name__)
            raise

    async with await client_of(gate, []) as http:
        assert (await http.get(sent)).status_code == status
    assert len(failed) == 1


async def test_an_error_of_the_gate_is_a_500_and_no_tool_runs() -> None:
    async def broken(call: Call) -> Answer:
        raise RuntimeError("secret")

    ran: list[Any] = []
    async with await client_of(broken, ran) as http:
        answer = await http.get("/paid/7")
        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert "secret" not in answer.text
    assert ran == []


async def test_the_call_is_in_the_scope_while_it_runs() -> None:
    seen: list[Any] = []

    async def gate(call: Call) -> Answer:
        seen.extend([call.scope, call.scope["twins.http.call"] is call])
        return await call.answer()

    async with await client_of(gate, []) as http:
        assert (await http.get("/paid/7")).status_code == 200
    assert seen[1] is True
    assert "twins.http.call" not in seen[0]


async def test_a_server_that_requires_a_login_is_not_opened_without_a_gate() -> None:
    guarded: FastMCP[Any] = FastMCP("guarded", auth=StaticTokenVerifier({"token": {"client_id": "me", "scopes": []}}))
    with pytest.raises(ValueError, match="requires a login"):
        await Twins.open(guarded)
    assert (await Twins.open(guarded, gate=closed)).operations == ()
