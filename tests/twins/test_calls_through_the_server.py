"""When a twin calls a tool through its server, so that none of its author's code is skipped; the answers are the same."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError, ValidationError
from fastmcp.server import create_proxy
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.tools.tool_transform import ArgTransform
from pydantic import BaseModel

from twins import Problem, Twins, route
from twins.fastmcp import every_tool, is_proxied
from twins.http.call import Twin

pytestmark = pytest.mark.anyio


class Counting(Middleware):
    """What an author may put around the calls of his tools."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        self.seen.append(context.message.name)
        return await call_next(context)


class GateSide(Counting):
    twin_safe = True

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        self.seen.append(get_http_request().scope["twins.http.call"].operation.name)
        return await call_next(context)


class Found(BaseModel):
    count: int


def server(*middleware: Middleware) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("guarded", middleware=list(middleware))

    @mcp.tool(meta=route("GET|POST /tool"))
    async def tool(what: str = "typed", number: int = 1) -> Found:
        """Do one of several things."""
        match what:
            case "problem":
                raise Problem(418, "teapot", "I am a teapot", errors=[{"pointer": "/x"}])
            case "refusal":
                raise ToolError("no coffee")
            case "crash":
                raise RuntimeError("secret")
            case "slow":
                await anyio.sleep(60)
        return Found(count=number)

    @mcp.tool(meta=route("GET /untyped"))
    async def untyped(text: str = "plain"):  # type: ignore[no-untyped-def]
        """Return what has no type."""
        return {"plain": "plain", "list": [1, "2"], "object": {"a": 1}}[text]

    return mcp


async def direct_calls(mcp: FastMCP[Any]) -> dict[str, bool]:
    twins = [entry.app for entry in (await Twins.open(mcp)).table.entries if isinstance(entry.app, Twin)]
    return {twin.operation.name: twin.direct is not None for twin in twins}


async def test_an_authors_middleware_sees_every_call(fronts: Any) -> None:
    counting = Counting()
    async with fronts(server(counting)) as each:
        assert (await each.http.get("/tool?number=3")).json() == {"count": 3}
        assert (await each.http.post("/tool", json={"number": 4})).json() == {"count": 4}
    assert counting.seen == ["tool", "tool"]


ANSWERS = {
    "tool?what=problem": (418, "teapot"),
    "tool?what=refusal": (400, "tool_error"),
    "tool?what=crash": (500, "internal_error"),
    "tool?number=x": (422, "invalid_request"),
    "tool?nubmer=1": (422, "invalid_request"),
    "tool?what=typed": (200, None),
    **{f"untyped?text={text}": (200, None) for text in ("plain", "list", "object")},
}


async def test_a_call_through_the_server_has_the_same_answer_as_a_direct_call(fronts: Any) -> None:
    async with fronts(server()) as direct, fronts(server(Counting())) as through:
        for path, (status, code) in ANSWERS.items():
            answers = [await each.http.get(f"/{path}") for each in (direct, through)]
            for answer in answers:
                assert (answer.status_code, answer.json().get("code")) == (status, code), path
                assert "secret" not in answer.text
            assert answers[0].json() == answers[1].json(), path


async def test_a_timeout_is_a_timeout_through_the_server_too(fronts: Any) -> None:
    mcp = server(Counting())

    @mcp.tool(timeout=0.05, meta=route("GET /sleep"))
    async def sleep() -> str:
        """Sleep."""
        await anyio.sleep(60)
        return "late"

    async with fronts(mcp) as each:
        answer = await each.http.get("/sleep")
        assert (answer.status_code, answer.json()["code"]) == (504, "timeout")


def disable(mcp: FastMCP[Any]) -> None:
    mcp.disable(names={"tool"})


def remove(mcp: FastMCP[Any]) -> None:
    mcp.local_provider.remove_tool("tool")


@pytest.mark.parametrize("change", [disable, remove])
async def test_a_tool_that_is_removed_while_it_is_served_is_gone(fronts: Any, change: Callable[[FastMCP[Any]], None]) -> None:
    mcp = server()
    async with fronts(mcp) as each:
        assert (await each.http.get("/tool")).status_code == 200
        change(mcp)
        assert (await each.http.get("/tool")).status_code == 404


async def test_middleware_that_is_added_later_is_not_skipped(fronts: Any) -> None:
    mcp, late = server(), Counting()
    async with fronts(mcp) as each:
        await each.http.get("/tool")
        mcp.add_middleware(late)
        assert (await each.http.get("/tool?number=5")).json() == {"count": 5}
    assert late.seen == ["tool"]


async def test_the_gates_own_middleware_finds_the_call_in_the_scope(fronts: Any) -> None:
    guard = GateSide()
    async with fronts(server(guard, Counting())) as each:
        assert (await each.http.get("/tool")).status_code == 200
    assert guard.seen == ["tool"]


async def test_a_mounted_servers_tools_are_reached(fronts: Any) -> None:
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(server(), namespace="inner")
    assert (await direct_calls(outer)) == {"inner_tool": False, "inner_untyped": False}
    async with fronts(outer) as each:
        assert (await each.http.get("/tool?number=6")).json() == {"count": 6}
        assert (await each.http.get("/tool?number=x")).status_code == 422
        assert (await each.http.get("/tool?what=crash")).status_code == 500
        assert (await each.http.get("/tool?what=problem")).status_code == 418


async def test_the_tools_of_a_proxied_server_are_reached(fronts: Any) -> None:
    proxy = create_proxy(Client(server()), name="proxy")
    assert [is_proxied(tool) for each in (proxy, server()) for tool in await every_tool(each)] == [True, True, False, False]
    assert await direct_calls(proxy) == {"tool": False, "untyped": False}
    async with fronts(proxy) as each:
        assert (await each.http.get("/tool?number=6")).json() == {"count": 6}
        for wrong in ("number=x", "nubmer=1", "what=refusal", "what=crash"):
            answer = await each.http.get(f"/tool?{wrong}")
            assert 400 <= answer.status_code < 600
            assert answer.headers["content-type"] == "application/problem+json"


class Open(Tool):
    """A tool whose schema leaves room for more, as one of another server may."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        if "strict" in arguments:
            raise ValidationError("strictly nothing")
        return ToolResult(structured_content=arguments)


async def test_a_tool_whose_schema_is_open_accepts_unknown_arguments(fronts: Any) -> None:
    mcp: FastMCP[Any] = FastMCP("other")
    mcp.add_tool(Open(name="open", parameters={"type": "object", "properties": {"a": {"type": "integer"}}}, meta=route("GET|POST /open")))
    async with fronts(mcp) as each:
        assert (await each.http.post("/open", json={"a": 1, "b": [2]})).json() == {"a": 1, "b": [2]}
        assert (await each.http.get("/open?a=1")).json() == {"a": 1}
        refused = await each.http.post("/open", json={"strict": True})
        assert (refused.status_code, refused.json()["detail"]) == (422, "strictly nothing")


async def test_an_error_result_is_a_refusal_with_its_words(fronts: Any) -> None:
    class Failing(Tool):
        async def run(self, arguments: dict[str, Any]) -> ToolResult:
            return ToolResult(content="over there it broke", is_error=True)

    mcp: FastMCP[Any] = FastMCP("other")
    mcp.add_tool(Failing(name="failing", parameters={"type": "object"}, meta=route("GET /failing")))
    async with fronts(mcp) as each:
        answer = await each.http.get("/failing")
        assert (answer.status_code, answer.json()["detail"]) == (400, "over there it broke")


async def test_a_transformed_tool_keeps_its_transformation(fronts: Any) -> None:
    mcp = server()
    tool = await mcp.get_tool("tool")
    assert tool is not None
    renamed = Tool.from_tool(tool, name="renamed", transform_args={"number": ArgTransform(name="amount")}, meta=route("GET /renamed"))
    mcp.add_tool(renamed)
    async with fronts(mcp) as each:
        assert (await each.http.get("/renamed?amount=7")).json() == {"count": 7}
        assert (await each.http.get("/renamed?number=7")).status_code == 422
