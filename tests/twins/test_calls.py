"""How a tool is called: injected parameters, threads, generators, timeouts, and what becomes of its errors."""

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from fastmcp import Context, FastMCP
from fastmcp.dependencies import CurrentRequest, Depends, Shared
from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.dependencies import get_http_headers
from pydantic import BaseModel
from starlette.requests import Request

from twins import Instant, Problem, Twins, route

pytestmark = pytest.mark.anyio


class Caller(Instant[str]):
    def of(self, scope: Any) -> str:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        return headers.get(b"x-caller", b"nobody").decode()


class Locked(Instant[str]):
    def of(self, scope: Any) -> str:
        raise Problem(403, "locked", "the door is locked")


class Known(Caller):
    def without_request(self) -> str:
        return "the operator"


class Strict(BaseModel):
    number: int


def one_tool(function: Any, **options: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("calls")
    server.tool(**({"meta": route("GET|POST /tool")} | options))(function)
    return server


async def is_direct(server: FastMCP[Any]) -> bool:
    """Whether the server's one twin goes straight to its function."""
    twins = await Twins.open(server)
    return bool(twins.table.entries[0].app.way.is_direct)  # type: ignore[attr-defined]  # a Twin


async def test_everything_that_fastmcp_injects_works_in_a_tool_called_directly(fronts: Any, stranger: FastMCP[Any]) -> None:
    async with fronts(stranger) as each:
        answer = await each.http.post("/v1/not-ours/greet", json={"name": "Ada"}, headers={"X-Agent": "me"})
        assert answer.json() == {"greeting": "hello Ada", "db": "database", "agent": "me", "has_id": True}


async def test_a_caller_cannot_supply_what_is_injected(fronts: Any, stranger: FastMCP[Any]) -> None:
    async with fronts(stranger) as each:
        for name in ("ctx", "headers", "db"):
            answer = await each.http.post("/v1/not-ours/greet", json={"name": "Ada", name: "mine"})
            assert [error["code"] for error in answer.json()["errors"]] == ["unknown"]


async def test_an_instant_is_had_from_the_requests_scope(fronts: Any) -> None:
    async def who(caller: str = Caller(), known: str = Known()) -> list[str]:  # type: ignore[assignment]
        return [caller, known]

    async with fronts(one_tool(who)) as each:
        assert (await each.http.get("/tool", headers={"X-Caller": "Ada"})).json() == {"result": ["Ada", "Ada"]}
        assert (await each.http.get("/tool?caller=Eve")).status_code == 422


async def test_an_instant_beside_other_dependencies_and_over_mcp_is_the_same(fronts: Any) -> None:
    async def who(known: str = Known(), db: str = Depends(lambda: "db")) -> list[str]:  # type: ignore[assignment]
        return [known, db]

    async with fronts(one_tool(who)) as each:
        assert (await each.http.get("/tool", headers={"X-Caller": "Ada"})).json() == {"result": ["Ada", "db"]}
        assert await each.over_mcp("who") == {"result": ["the operator", "db"]}


async def test_an_instant_without_a_request_refuses_unless_it_knows_better(fronts: Any) -> None:
    async def who(caller: str = Caller()) -> str:  # type: ignore[assignment]
        return caller

    async with fronts(one_tool(who)) as each:
        refused = await each.mcp.call_tool_mcp("who", {})
        assert "Caller is known within an HTTP request only" in refused.content[0].text


async def test_an_instant_may_refuse_the_call(fronts: Any) -> None:
    async def enter(door: str = Locked()) -> str:  # type: ignore[assignment]
        return door

    async with fronts(one_tool(enter)) as each:
        assert (await each.http.get("/tool")).json()["code"] == "locked"


async def test_the_surroundings_are_found_without_being_injected(fronts: Any) -> None:
    async def look() -> dict[str, Any]:
        return {"agent": get_http_headers().get("x-agent")}

    async with fronts(one_tool(look)) as each:
        assert (await each.http.get("/tool", headers={"X-Agent": "me"})).json() == {"agent": "me"}


async def test_the_request_is_the_one_that_was_sent(fronts: Any) -> None:
    async def look(request: Request = CurrentRequest()) -> str:  # noqa: B008  # FastMCP's way of injecting
        return request.url.path

    async with fronts(one_tool(look)) as each:
        assert (await each.http.get("/tool")).json() == {"result": "/tool"}


async def test_state_is_of_one_call_and_asking_back_is_refused(fronts: Any) -> None:
    async def ask(ctx: Context) -> str:
        assert await ctx.get_state("asked") is None
        await ctx.set_state("asked", True)
        assert ctx.client_id is None
        return str(await ctx.elicit("Sure?", bool))

    async with fronts(one_tool(ask)) as each:
        for _ in range(2):
            answer = await each.http.get("/tool")
            assert (answer.status_code, answer.json()["code"]) == (400, "tool_error")


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


@pytest.mark.parametrize("in_thread", [True, False])
async def test_a_plain_function_runs_in_a_thread_unless_it_says_otherwise(fronts: Any, in_thread: bool) -> None:
    def where() -> bool:
        return threading.current_thread() is not threading.main_thread()

    async with fronts(one_tool(where, run_in_thread=in_thread)) as each:
        assert (await each.http.get("/tool")).json() == {"result": in_thread}


async def test_generators_are_read_to_their_end(fronts: Any, stranger: FastMCP[Any]) -> None:
    async with fronts(stranger) as each:
        for tool in ("count", "count_async"):
            answer = await each.http.post(f"/v1/not-ours/{tool}", json={"until": 3})
            assert answer.json() == {"result": [0, 1, 2]}


async def test_a_slow_tool_is_given_up_at_its_timeout(fronts: Any) -> None:
    async def sleep() -> str:
        await anyio.sleep(60)
        return "late"

    server = one_tool(sleep, timeout=0.05)
    assert await is_direct(server)
    async with fronts(server) as each:
        answer = await each.http.get("/tool")
        assert (answer.status_code, answer.json()["code"]) == (504, "timeout")


async def test_a_thread_that_comes_back_late_is_late(fronts: Any) -> None:
    stop = threading.Event()

    def wait() -> str:
        stop.wait(0.2)
        return "late"

    async with fronts(one_tool(wait, timeout=0.05)) as each:
        assert (await each.http.get("/tool")).status_code == 504


async def test_a_tools_own_timeout_error_is_a_fault_of_its_own(fronts: Any) -> None:
    async def fail() -> str:
        raise TimeoutError("upstream")

    async with fronts(one_tool(fail, timeout=60)) as each:
        assert (await each.http.get("/tool")).status_code == 500


@pytest.mark.parametrize(
    ("error", "status", "code", "detail"),
    [
        (Problem(418, "teapot", "I am a teapot"), 418, "teapot", "I am a teapot"),
        (ToolError("no coffee"), 400, "tool_error", "no coffee"),
        (ValidationError("bad bean"), 422, "invalid_request", "bad bean"),
        (NotFoundError("Unknown tool"), 404, "not_found", "this tool is not served any more"),
        (RuntimeError("secret"), 500, "internal_error", None),
        (KeyError("secret"), 500, "internal_error", None),
    ],
)
async def test_an_error_of_the_body_becomes_a_problem(
    fronts: Any, caplog: pytest.LogCaptureFixture, error: Exception, status: int, code: str, detail: str | None
) -> None:
    async def fail() -> str:
        raise error

    async with fronts(one_tool(fail)) as each:
        answer = await each.http.get("/tool")
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert "secret" not in answer.text
        if detail is not None:
            assert answer.json()["detail"] == detail
    faults = [record for record in caplog.records if record.name == "twins.call"]
    assert [record.levelno for record in faults] == ([logging.ERROR] if status == 500 else [])


async def test_a_body_that_misuses_pydantic_is_a_fault_not_a_bad_request(fronts: Any) -> None:
    def fail(number: str) -> int:
        return Strict.model_validate({"number": number}).number

    async with fronts(one_tool(fail)) as each:
        assert (await each.http.get("/tool?number=x")).status_code == 500


async def test_strict_servers_take_json_types_and_their_spellings(fronts: Any, stranger: FastMCP[Any]) -> None:
    stranger.strict_input_validation = True
    async with fronts(stranger) as each:
        assert (await each.http.get("/v1/not-ours/add?a=5")).json() == {"result": 7}
        assert (await each.http.get("/v1/not-ours/report?day=2026-08-21&color=red&level=2")).json()["level"] == 2
        stranger_post = await each.http.post("/v1/not-ours/count", json={"until": "3"})
        assert stranger_post.status_code == 422
        assert await each.over_mcp("count", until="3") is None


async def test_a_call_that_is_cancelled_stays_cancelled() -> None:
    started = anyio.Event()
    ended: list[str] = []

    async def sleep() -> str:
        started.set()
        try:
            await anyio.sleep(60)
        finally:
            ended.append("cancelled")
        return "late"

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        ended.append("sent")

    twins = await Twins.open(one_tool(sleep))
    endpoint, _ = twins.table.find("/tool") or pytest.fail("no route")
    scope = {"type": "http", "method": "GET", "path": "/tool", "query_string": b"", "headers": [], "path_params": {}}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(endpoint, scope, receive, send)
        await started.wait()
        tasks.cancel_scope.cancel()
    assert ended == ["cancelled"]


async def test_a_caller_that_hangs_up_before_its_body_is_read_runs_nothing() -> None:
    ran: list[int] = []

    async def work() -> None:
        ran.append(1)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        ran.append(2)

    twins = await Twins.open(one_tool(work))
    endpoint, _ = twins.table.find("/tool") or pytest.fail("no route")
    await endpoint(
        {"type": "http", "method": "POST", "path": "/tool", "query_string": b"", "headers": [], "path_params": {}}, receive, send
    )
    assert ran == []
