"""How a tool is called: threads, generators, timeouts, cancellation and errors."""

import functools
import logging
import threading
from itertools import count
from typing import Any

import anyio
import httpx
import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import AuthorizationError, NotFoundError, ToolError, ValidationError
from fastmcp.server.middleware import Middleware
from fastmcp.tools import Tool
from listening import listening
from patience import patience
from pydantic import BaseModel

from twins import Answer, Call, Problem, Twins, route
from twins.http.call import Twin
from twins.tool.hang_up import WATCH_AFTER

pytestmark = pytest.mark.anyio


class Strict(BaseModel):
    number: int


def one_tool(function: Any, **options: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("calls")
    server.tool(**({"meta": route("GET|POST /tool")} | options))(function)
    return server


async def is_direct(server: FastMCP[Any]) -> bool:
    twin = (await Twins.open(server)).table.entries[0].app
    assert isinstance(twin, Twin)
    return twin.direct is not None


async def test_a_plain_function_runs_in_a_thread_unless_its_tool_opts_out(fronts: Any) -> None:
    def where() -> bool:
        return threading.current_thread() is not threading.main_thread()

    for in_thread in (True, False):
        async with fronts(one_tool(where, run_in_thread=in_thread)) as each:
            assert (await each.http.get("/tool")).json() == {"result": in_thread}


class Adder:
    """Add, as an object that can be called."""

    async def __call__(self, a: int, b: int) -> int:
        return a + b

    def method(self, a: int, b: int = 2) -> int:
        return a + b


@pytest.mark.parametrize("function", [Adder(), Adder().method, functools.partial(Adder().__call__, b=2)])
async def test_every_kind_of_callable_is_called(fronts: Any, function: Any) -> None:
    server: FastMCP[Any] = FastMCP("calls")
    server.add_tool(Tool.from_function(function, name="add", meta=route("GET /tool")))
    assert await is_direct(server)
    async with fronts(server) as each:
        assert (await each.http.get("/tool?a=5&b=2")).json() == await each.over_mcp("add", a=5, b=2) == {"result": 7}
        assert (await each.http.get("/tool?a=x&b=2")).status_code == 422


async def test_a_call_of_another_tool_with_bad_arguments_is_the_tools_own_fault(fronts: Any, stranger: FastMCP[Any]) -> None:
    async def outer(ctx: Context) -> str:
        await stranger.call_tool("add", {"a": "hunter2"})
        return "never"

    async with fronts(one_tool(outer)) as each:
        answer = await each.http.get("/tool")
        assert answer.status_code == 500
        assert "hunter2" not in answer.text


async def test_generators_are_read_to_their_end(fronts: Any, stranger: FastMCP[Any]) -> None:
    async with fronts(stranger) as each:
        for tool in ("count", "count_async"):
            answer = await each.http.post(f"/v1/not-ours/{tool}", json={"until": 3})
            assert answer.json() == {"result": [0, 1, 2]}


async def test_a_slow_tool_ends_at_its_timeout(fronts: Any) -> None:
    async def sleep() -> str:
        await anyio.sleep(60)
        return "late"

    server = one_tool(sleep, timeout=0.05)
    assert await is_direct(server)
    async with fronts(server) as each:
        answer = await each.http.get("/tool")
        assert (answer.status_code, answer.json()["code"]) == (504, "timeout")


async def test_a_tool_within_its_timeout_answers_as_without_one(fronts: Any) -> None:
    def quick(number: int) -> int:
        return number

    async with fronts(one_tool(quick, timeout=60)) as each:
        assert (await each.http.get("/tool?number=5")).json() == {"result": 5}


async def test_a_function_that_cannot_be_stopped_and_returns_late_times_out(fronts: Any) -> None:
    stop = threading.Event()

    def wait() -> str:
        stop.wait(0.2)
        return "late"

    async def block() -> str:
        return wait()

    for function in (wait, block):
        async with fronts(one_tool(function, timeout=0.05)) as each:
            assert (await each.http.get("/tool")).status_code == 504


async def test_a_timeout_error_that_a_tool_raises_is_its_own_fault(fronts: Any) -> None:
    async def fail() -> str:
        raise TimeoutError("upstream")

    async with fronts(one_tool(fail, timeout=60)) as each:
        assert (await each.http.get("/tool")).status_code == 500


@pytest.mark.parametrize(
    ("error", "status", "code", "detail"),
    [
        (Problem(418, "teapot", "I am a teapot"), 418, "teapot", "I am a teapot"),
        (ToolError("no coffee"), 400, "tool_error", "no coffee"),
        (ToolError("no \udcff"), 400, "tool_error", "no \udcff"),
        (ValidationError("bad bean"), 422, "invalid_request", "bad bean"),
        (NotFoundError("secret"), 500, "internal_error", None),
        (AuthorizationError("not you"), 403, "forbidden", "this caller may not use the tool"),
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
    faults = [record for record in caplog.records if record.name == "twins.tool.errors"]
    assert [record.levelno for record in faults] == ([logging.ERROR] if status == 500 else [])


async def test_a_body_that_misuses_pydantic_is_a_fault_not_a_bad_request(fronts: Any) -> None:
    def fail(number: str) -> int:
        return Strict.model_validate({"number": number}).number

    async with fronts(one_tool(fail)) as each:
        assert (await each.http.get("/tool?number=x")).status_code == 500


async def test_strict_servers_accept_json_types_and_their_text_forms(fronts: Any, stranger: FastMCP[Any]) -> None:
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


async def test_no_tool_runs_for_a_caller_that_disconnects_before_its_body_is_read() -> None:
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


class Around(Middleware):
    """Middleware of an author, with which calls go through the server."""

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        return await call_next(context)


@pytest.mark.parametrize("middleware", [(), (Around(),)], ids=["direct", "through the server"])
@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_caller_who_hangs_up_cancels_the_tool_unless_the_gate_has_the_call_go_on(
    middleware: tuple[Middleware, ...], goes_on: bool
) -> None:
    mcp: FastMCP[Any] = FastMCP("Slow", middleware=middleware)
    begun, go = anyio.Event(), anyio.Event()
    ended: list[str] = []

    @mcp.tool(annotations={"readOnlyHint": True}, meta=route("GET /slow"))
    async def slow() -> int:
        begun.set()
        try:
            await go.wait()
        except BaseException:
            ended.append("cancelled")
            raise
        ended.append("by itself")
        return 1

    async def gate(call: Call) -> Answer:
        call.runs_to_end = goes_on
        return await call.answer()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await twins.table(scope, receive, send)

    twins = await Twins.open(mcp, gate=gate)
    async with listening(app) as base:
        async with await anyio.connect_tcp("127.0.0.1", httpx.URL(base).port or 0) as connection:
            await connection.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
            await begun.wait()
            await anyio.sleep(0.1 if middleware else 0.4)  # before and after calls are watched
        with anyio.fail_after(patience(10)):
            if goes_on:
                await anyio.sleep(1)
                go.set()
            while not ended:  # noqa: ASYNC110  # an event would say no more
                await anyio.sleep(0.01)
    assert ended == ["by itself" if goes_on else "cancelled"]


async def test_a_slow_call_is_answered_though_an_app_around_repeats_the_request_for_ever() -> None:
    async def slow() -> int:
        await anyio.sleep(2 * WATCH_AFTER)
        return 1

    twin = (await Twins.open(one_tool(slow))).table.entries[0].app
    sent: list[Any] = []
    asked = count()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False} if next(asked) < 10 else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/tool", "query_string": b"", "headers": [], "path_params": {}}
    await twin(scope, receive, send)
    assert sent, "it was asked again and again"
    assert (sent[0]["status"], sent[1]["body"]) == (200, b'{"result":1}')
