"""The direct MCP endpoint on a real socket: which way a request takes, callers who hang up, long answers, changes, spans, kept bytes."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import fastmcp
import httpx
import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.dependencies import get_http_headers
from fastmcp.server.middleware import Middleware
from listening import listening
from mcp_oracle import ANSWERED_BY, LEGACY, MODERN, Request, request_of
from mcp_types import InputRequiredResult
from patience import patience
from pydantic import BaseModel, Field
from starlette.types import Message, Receive, Scope, Send
from wikipedia_mcp.server import create_server

from tests import forkserver, patient
from twins import ArgumentChecker, Begun, DirectMcp, attach, operations_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def direct(server: FastMCP[Any], **options: Any) -> AsyncIterator[str]:
    """A stateless server behind the direct endpoint, which explains itself."""
    app = server.http_app(path="/mcp", stateless_http=True)
    checkers = [ArgumentChecker(server, operation) for operation in await operations_of(server)]
    async with app.router.lifespan_context(app):
        front = DirectMcp(app, server, checkers, stateless=True, explains=True, **options)
        async with listening(front, lifespan="off") as base:
            yield base


def call_of(tool: str, version: str | None = MODERN, /, **arguments: Any) -> Request:
    return request_of(tool, version, "tools/call", {"name": tool, "arguments": arguments})


async def post(base: str, request: Request) -> httpx.Response:
    async with patient.AsyncClient(base_url=base) as http:
        return await http.post("/mcp", content=request.body, headers=request.headers)


async def test_attach_answers_a_strangers_server_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # its tools find no network
    async with listening(attach(create_server(language="de"), direct_mcp="explain")) as base:
        answer = await post(base, call_of("search_wikipedia", query="x"))
        assert (answer.headers[ANSWERED_BY], answer.json()["result"]["structuredContent"]["status"]) == ("twins", "no_results")
        kept_session = await post(base, call_of("search_wikipedia", LEGACY, query="x"))
        assert kept_session.headers[ANSWERED_BY] == "server; the server keeps sessions"
        for mode in ("auto", "legacy"):
            async with Client(f"{base}/mcp", mode=mode) as client:
                assert "get_article" in [tool.name for tool in await client.list_tools()]
                assert (await client.call_tool("search_wikipedia", {"query": "x"})).structured_content["status"] == "no_results"


@pytest.mark.parametrize("off", ["direct_mcp", "json_response"])
async def test_attach_leaves_everything_to_the_server_where_it_is_told_to(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastmcp.settings, "json_response", off == "json_response")
    app = attach(counting([]), stateless=True, direct_mcp="off" if off == "direct_mcp" else "explain")
    async with listening(app) as base:
        answer = await post(base, call_of("count"))
        assert answer.json()["result"]["structuredContent"] == {"result": 1}
        assert ANSWERED_BY not in answer.headers


def counting(counted: list[int]) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Counting")

    @mcp.tool
    async def count() -> int:
        counted.append(1)
        return len(counted) or 1

    return mcp


async def hang_up(base: str, request: Request, *, after: anyio.Event) -> None:
    lines = ["POST /mcp HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in request.headers.items())]
    head = "\r\n".join([*lines, f"Content-Length: {len(request.body)}", "", ""]).encode()
    async with await anyio.connect_tcp("127.0.0.1", httpx.URL(base).port or 0) as connection:
        await connection.send(head + request.body)
        await after.wait()


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_caller_who_hangs_up_cancels_the_tool(version: str) -> None:
    mcp: FastMCP[Any] = FastMCP("Slow")
    begun, ended = anyio.Event(), anyio.Event()

    @mcp.tool
    async def slow() -> int:
        begun.set()
        try:
            await anyio.sleep(60)
        finally:
            ended.set()
        return 1

    async with direct(mcp) as base:
        await hang_up(base, call_of("slow", version), after=begun)
        with anyio.fail_after(patience(10)):
            await ended.wait()


async def test_a_tool_that_never_waited_is_cancelled_from_its_first_wait_on() -> None:
    mcp: FastMCP[Any] = FastMCP("Cached")
    begun = [anyio.Event() for _ in range(3)]
    ended: dict[int, str] = {}

    @mcp.tool
    async def fetch(number: int, seconds: float) -> int:
        begun[number].set()
        if seconds:
            try:
                await anyio.sleep(seconds)
                ended[number] = "by itself"
            except BaseException:
                ended[number] = "cancelled"
                raise
        return number

    async with direct(mcp) as base:
        assert (await post(base, call_of("fetch", number=0, seconds=0))).json()["result"]["structuredContent"] == {"result": 0}
        for number, seconds in ((1, 1.0), (2, 60)):
            await hang_up(base, call_of("fetch", number=number, seconds=seconds), after=begun[number])
            with anyio.fail_after(patience(10)):
                while number not in ended:  # noqa: ASYNC110  # an event for each would say no more
                    await anyio.sleep(0.01)
    assert ended == {1: "by itself", 2: "cancelled"}


async def test_work_that_was_begun_is_finished_or_cancelled_as_if_awaited_from_the_start() -> None:
    steps = []

    async def work(waits: int, *, fails: bool = False) -> int:
        for _ in range(waits):
            await asyncio.sleep(0)
        if fails:
            raise ValueError(waits)
        return waits

    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            steps.append("cleaned up")
        return "done all the same"

    at_once = Begun(work(0))
    assert (at_once.is_over, at_once.result) == (True, 0)
    assert [await Begun(work(waits)) for waits in (1, 3)] == [1, 3]
    with pytest.raises(ValueError, match="0"):
        Begun(work(0, fails=True))
    with pytest.raises(ValueError, match="2"):
        await Begun(work(2, fails=True))

    async def awaited() -> str:
        return await Begun(stubborn())

    task = asyncio.create_task(awaited())
    await asyncio.sleep(0)
    task.cancel()
    assert (await task, steps) == ("done all the same", ["cleaned up"])


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_a_silent_tool_keeps_its_stream_alive(version: str) -> None:
    mcp: FastMCP[Any] = FastMCP("Slow")

    @mcp.tool
    async def slow(ctx: Context) -> int:
        await anyio.sleep(1.2)
        return 7

    async with direct(mcp, ping_seconds=0.2) as base:
        answer = await post(base, call_of("slow", version))
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers[ANSWERED_BY] == "twins"
        comments = answer.text.split("event: message", 1)[0]
        assert comments.count(": ping") >= 3
        assert '"structuredContent":{"result":7}' in answer.text


async def test_a_comment_that_is_being_sent_when_the_tool_returns_is_sent_to_its_end() -> None:
    mcp: FastMCP[Any] = FastMCP("Slow")
    sending, sent = anyio.Event(), list[str]()

    @mcp.tool
    async def slow() -> int:
        await sending.wait()
        return 7

    app = attach(mcp, stateless=True, direct_mcp="explain")

    async def slowly(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent_slowly(message: Message) -> None:
            if scope["type"] == "http":
                sent.append(message["type"])
                sending.set()
                await anyio.sleep(0.05)  # as a server does whose client reads slowly
            await send(message)

        await app(scope, receive, sent_slowly)

    async with listening(slowly) as base:
        answer = await post(base, call_of("slow", LEGACY))
    assert '"structuredContent":{"result":7}' in answer.text
    assert sent.count("http.response.start") == 1


async def test_what_changes_at_run_time_is_seen_at_once() -> None:
    server = counting([])
    async with direct(server) as base:
        listed = request_of("list", MODERN, "tools/list", {})
        first, again = await post(base, listed), await post(base, listed)
        assert (first.headers[ANSWERED_BY], again.headers[ANSWERED_BY]) == ("server; the answer is not known yet", "twins")
        assert first.json() == again.json()
        assert (await post(base, call_of("count"))).headers[ANSWERED_BY] == "twins"

        @server.tool
        async def added() -> int:
            return 2

        renewed = await post(base, listed)
        assert [tool["name"] for tool in renewed.json()["result"]["tools"]] == ["count", "added"]
        assert (await post(base, call_of("added"))).json()["result"]["structuredContent"] == {"result": 2}
        server.local_provider.remove_tool("count")
        assert "Unknown tool" in (await post(base, call_of("count"))).text
        assert [tool["name"] for tool in (await post(base, listed)).json()["result"]["tools"]] == ["added"]


async def test_middleware_that_is_added_later_sees_every_call() -> None:
    server, seen = counting([]), []

    class Sees(Middleware):
        async def on_message(self, context: Any, call_next: Any) -> Any:
            seen.append(context.method)
            return await call_next(context)

    async with direct(server) as base:
        await post(base, call_of("count"))
        server.add_middleware(Sees())
        for request in (call_of("count"), *[request_of("list", MODERN, "tools/list", {})] * 2, request_of("ping", LEGACY, "ping", {})):
            assert (await post(base, request)).headers[ANSWERED_BY].startswith("server; ")
        assert seen == ["tools/call", "tools/list", "tools/list", "ping"]


async def test_a_gate_that_is_middleware_is_never_passed_by() -> None:
    class Refuses(Middleware):
        twin_safe = True

        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            raise ToolError("not you")

    class Hides(Middleware):
        twin_safe = True

        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            return [] if get_http_headers().get("x-caller") else await call_next(context)

    server = counting([])
    server.add_middleware(Refuses())
    async with direct(server) as base:
        assert "not you" in (await post(base, call_of("count"))).text
    server.add_middleware(Hides())
    async with direct(server) as base:
        listed = request_of("list", MODERN, "tools/list", {})
        for _ in range(2):
            assert [tool["name"] for tool in (await post(base, listed)).json()["result"]["tools"]] == ["count"]
        hidden = await post(base, listed._replace(headers={**listed.headers, "x-caller": "somebody"}))
        assert hidden.json()["result"]["tools"] == []
    with pytest.raises(ValueError, match="requires a login"):
        DirectMcp(server.http_app(), FastMCP("Locked", auth=StaticTokenVerifier({"t": {"client_id": "c", "scopes": []}})), [])


async def test_a_frozen_result_is_written_once_more_and_then_kept() -> None:
    written: list[str] = []

    def note(text: str) -> bool:
        written.append(text)
        return False

    class Kept(BaseModel, frozen=True):
        text: str = Field(exclude_if=note)

    mcp: FastMCP[Any] = FastMCP("Kept")
    results = [Kept(text="first")]

    @mcp.tool
    async def latest() -> Kept:
        return results[-1]

    async with direct(mcp) as base:
        answers = [(await post(base, call_of("latest"))).json() for _ in range(5)]
        assert all(answer == answers[0] for answer in answers)
        assert len(written) == 2
        results.append(Kept(text="second"))
        assert (await post(base, call_of("latest"))).json()["result"]["structuredContent"] == {"text": "second"}


async def test_a_tool_that_asks_for_input_is_left_to_the_server(caplog: pytest.LogCaptureFixture) -> None:
    from mcp_odd_tools import odd_server

    async with direct(odd_server()) as base:
        answer = await post(base, call_of("asks_first"))
        assert answer.headers[ANSWERED_BY] == "server; the tool asks for input"
        assert answer.json()["result"]["resultType"] == "input_required"


async def test_a_tool_that_asks_for_input_after_a_notification_ends_its_stream_with_the_question() -> None:
    mcp: FastMCP[Any] = FastMCP("Asks")

    @mcp.tool
    async def ask(ctx: Context):  # type: ignore[no-untyped-def]  # what it returns is not declared
        await ctx.report_progress(1, 2)
        return InputRequiredResult(request_state="s", input_requests={})

    async with direct(mcp) as base:
        request = request_of("ask", MODERN, "tools/call", {"name": "ask", "arguments": {}}, meta={"progressToken": 1})
        first, again = await post(base, request), await post(base, request)
        for answer in (first, again):
            events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
            assert events[0]["method"] == "notifications/progress"
            assert events[-1]["result"]["resultType"] == "input_required"


async def test_what_a_tool_sends_after_its_answer_is_dropped() -> None:
    mcp: FastMCP[Any] = FastMCP("Late")
    sent = anyio.Event()
    tasks = set()

    @mcp.tool
    async def leave(ctx: Context) -> int:
        async def later() -> None:
            await anyio.sleep(0.05)
            await ctx.report_progress(1, 2)
            sent.set()

        tasks.add(asyncio.create_task(later()))
        return 1

    async with direct(mcp) as base:
        request = request_of("leave", MODERN, "tools/call", {"name": "leave", "arguments": {}}, meta={"progressToken": 1})
        answer = await post(base, request)
        assert answer.json()["result"]["structuredContent"] == {"result": 1}
        with anyio.fail_after(patience(10)):
            await sent.wait()


def test_spans_are_those_of_the_server() -> None:
    script = Path(__file__).with_name("spans_of_both_ways.py")
    ran = forkserver.shared().run(f"import runpy\nrunpy.run_path({str(script)!r})", timeout=patience(60))
    assert ran.returncode == 0, ran.stderr
    own, direct = ran.stdout.splitlines()
    assert own == direct
    assert all(name in own for name in ("tools/call count", "tools/list", "fastmcp.component.key", "count-secret-error"))
