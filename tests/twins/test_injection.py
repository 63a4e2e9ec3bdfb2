"""What FastMCP and others inject into a tool that is called directly."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentRequest, Depends, Shared
from fastmcp.server.dependencies import get_http_headers
from starlette.requests import Request

from tests import patient
from twins import Answer, Call, Problem, RequestDependency, Twins, route

pytestmark = pytest.mark.anyio


class Caller(RequestDependency[str]):
    def from_scope(self, scope: Any) -> str:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        return headers.get(b"x-caller", b"nobody").decode()


class Tenant(RequestDependency[str]):
    scope_key = "tests.tenant"


class Locked(RequestDependency[str]):
    def from_scope(self, scope: Any) -> str:
        raise Problem(403, "locked", "the door is locked")


class Known(Caller):
    def without_request(self) -> str:
        return "the operator"


def one_tool(function: Any, **options: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("calls")
    server.tool(**({"meta": route("GET|POST /tool")} | options))(function)
    return server


async def test_everything_that_fastmcp_injects_works_in_a_tool_called_directly(fronts: Any, stranger: FastMCP[Any]) -> None:
    async with fronts(stranger) as each:
        answer = await each.http.post("/v1/not-ours/greet", json={"name": "Ada"}, headers={"X-Agent": "me"})
        assert answer.json() == {"greeting": "hello Ada", "db": "database", "agent": "me", "has_id": True}


async def test_a_caller_cannot_set_an_injected_parameter(fronts: Any, stranger: FastMCP[Any]) -> None:
    async with fronts(stranger) as each:
        for name in ("ctx", "headers", "db"):
            answer = await each.http.post("/v1/not-ours/greet", json={"name": "Ada", name: "mine"})
            assert [error["code"] for error in answer.json()["errors"]] == ["unknown"]


async def test_a_request_dependency_comes_from_the_scope(fronts: Any) -> None:
    async def who(caller: str = Caller(), known: str = Known()) -> list[str]:  # type: ignore[assignment]
        return [caller, known]

    async with fronts(one_tool(who)) as each:
        assert (await each.http.get("/tool", headers={"X-Caller": "Ada"})).json() == {"result": ["Ada", "Ada"]}
        assert (await each.http.get("/tool?caller=Eve")).status_code == 422


async def test_a_dependency_that_names_a_key_of_the_scope_gets_what_the_gate_put_there() -> None:
    async def where(tenant: str = Tenant()) -> str:  # type: ignore[assignment]
        return tenant

    async def gate(call: Call) -> Answer:
        if tenant := call.request.headers.get("x-tenant"):
            call.scope[Tenant.scope_key] = tenant
        return await call.answer()

    twin = (await Twins.open(one_tool(where), gate=gate)).table.entries[0].app
    async with patient.AsyncClient(transport=httpx.ASGITransport(twin), base_url="http://test") as http:
        assert (await http.get("/tool", headers={"X-Tenant": "acme"})).json() == {"result": "acme"}
        assert (await http.get("/tool")).json()["detail"] == "Tenant is known only in an HTTP request; call this tool over HTTP"


async def test_a_request_dependency_is_the_same_with_other_dependencies_and_over_mcp(fronts: Any) -> None:
    async def who(known: str = Known(), db: str = Depends(lambda: "db")) -> list[str]:  # type: ignore[assignment]
        return [known, db]

    async with fronts(one_tool(who)) as each:
        assert (await each.http.get("/tool", headers={"X-Caller": "Ada"})).json() == {"result": ["Ada", "db"]}
        assert await each.over_mcp("who") == {"result": ["the operator", "db"]}


async def test_a_dependency_without_a_request_raises_unless_it_has_a_value(fronts: Any) -> None:
    async def who(caller: str = Caller()) -> str:  # type: ignore[assignment]
        return caller

    async with fronts(one_tool(who)) as each:
        refused = await each.mcp.call_tool_mcp("who", {})
        assert "Caller is known only in an HTTP request" in refused.content[0].text


async def test_a_request_dependency_may_refuse_the_call(fronts: Any) -> None:
    async def enter(door: str = Locked()) -> str:  # type: ignore[assignment]
        return door

    async with fronts(one_tool(enter)) as each:
        assert (await each.http.get("/tool")).json()["code"] == "locked"


async def test_the_context_is_found_without_being_injected(fronts: Any) -> None:
    async def look() -> dict[str, Any]:
        return {"agent": get_http_headers().get("x-agent")}

    async with fronts(one_tool(look)) as each:
        assert (await each.http.get("/tool", headers={"X-Agent": "me"})).json() == {"agent": "me"}


async def test_the_request_is_the_one_that_was_sent(fronts: Any) -> None:
    async def look(request: Request = CurrentRequest()) -> str:  # noqa: B008  # FastMCP's way of injecting
        return request.url.path

    async with fronts(one_tool(look)) as each:
        assert (await each.http.get("/tool")).json() == {"result": "/tool"}


async def test_state_belongs_to_one_call_and_questions_to_the_caller_say_what_they_ask(fronts: Any) -> None:
    async def ask(ctx: Context) -> str:
        assert await ctx.get_state("asked") is None
        await ctx.set_state("asked", True)
        assert ctx.client_id is None
        return str(await ctx.elicit("Sure?", bool))

    async with fronts(one_tool(ask)) as each:
        for _ in range(2):
            answer = await each.http.get("/tool")
            assert (answer.status_code, answer.json()["code"]) == (409, "input_required")
            assert "Sure?" in str(answer.json()["input_requests"]["elicitation/create"])


async def test_a_shared_dependency_is_built_once(fronts: Any) -> None:
    built: list[int] = []

    def pool() -> int:
        built.append(1)
        return len(built)

    async def use(pool: int = Shared(pool)) -> int:
        return pool

    async with fronts(one_tool(use)) as each:
        assert [(await each.http.get("/tool")).json()["result"] for _ in range(3)] == [1, 1, 1]


async def test_a_shared_dependency_works_before_the_lifespan_runs() -> None:
    async def use(pool: int = Shared(lambda: 7)) -> int:
        return pool

    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    twins = await Twins.open(one_tool(use))
    endpoint, params = twins.table.find("/tool") or pytest.fail("no route")
    scope = {"type": "http", "method": "GET", "path": "/tool", "query_string": b"", "headers": [], "path_params": params}
    await endpoint(scope, receive, send)
    assert sent[1]["body"] == b'{"result":7}'


async def test_the_lifespans_result_reaches_the_tool(fronts: Any) -> None:
    @asynccontextmanager
    async def lifespan(server: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
        yield {"database": "open"}

    server: FastMCP[Any] = FastMCP("calls", lifespan=lifespan)

    @server.tool(meta=route("GET /tool"))
    async def look(ctx: Context) -> str:
        """Look."""
        return str(ctx.lifespan_context["database"])

    async with fronts(server) as each:
        assert (await each.http.get("/tool")).json() == {"result": "open"}
