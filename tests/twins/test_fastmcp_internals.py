"""FastMCP's private names do what twins expects; an upgrade that changes one fails here."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.context import _current_context
from fastmcp.server.dependencies import _current_server, fastmcp_request_ctx, get_context, get_http_headers, get_server
from fastmcp.server.middleware import Middleware, MiddlewareContext
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.tests import asgi_client

from twins import serve_schemas
from twins.fastmcp import every_tool, is_crash
from twins.tool import context
from twins.tool.context import ToolContext, reset

pytestmark = pytest.mark.anyio


class Listings(Middleware):
    """Counts how often the tools are listed."""

    def __init__(self) -> None:
        self.count = 0

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        self.count += 1
        return await call_next(context)


class CallsThrough(Middleware):
    """An author's middleware around each call: the twin takes the slow way."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        return await call_next(context)


async def listings_of_one_call() -> int:
    listings = Listings()
    server: FastMCP[Any] = FastMCP("internals", middleware=[listings])

    @server.tool
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    async with asgi_client(server) as client:
        await serve_schemas(server)
        await client.list_tools()  # the client's own listing, by which it checks results
        listings.count = 0
        assert (await client.call_tool("double", {"number": 2})).data == 4
    return listings.count


async def test_with_serve_schemas_a_call_lists_nothing() -> None:
    assert await listings_of_one_call() == 0


def server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("internals")

    @mcp.tool
    async def tool() -> str:
        """A tool."""
        return "x"

    @mcp.tool(auth=lambda context: False)
    async def hidden() -> str:
        """A tool that its auth= hides."""
        return "x"

    return mcp


async def test_tools_with_auth_are_seen_at_start_though_no_caller_may_see_them() -> None:
    mcp = server()
    assert [tool.name for tool in await mcp.list_tools()] == ["tool"]
    assert [tool.name for tool in await every_tool(mcp)] == ["tool", "hidden"]


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        (Context, "request_id", "does not see its request"),
        (ToolResult, "to_mcp_result", "a result is sent in another form"),
        (FastMCP, "_rebind_prefab_tool_names", "object is not callable"),
    ],
)
def test_a_release_that_does_something_else_is_found_at_start(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, said: str) -> None:
    assert context.why_slow() is None
    monkeypatch.setattr(kind, name, {"to_mcp_result": lambda _: []}.get(name, "other"))
    context._fault.cache_clear()
    try:
        assert said in str(context.why_slow())
    finally:
        context._fault.cache_clear()


async def test_context_variables_are_reset_after_a_call() -> None:
    mcp = server()
    scope = {"type": "http", "headers": [(b"x-agent", b"me")], "request_id": "r-1"}
    entered = ToolContext(mcp).enter(scope)
    try:
        context = get_context()
        assert (get_server(), context.request_id, get_http_headers()["x-agent"]) == (mcp, "r-1", "me")
        assert context.request_context is not None
        assert not hasattr(context.request_context, "no_such_thing")
        with pytest.raises(Exception, match="back-channel"):
            await context.session.send_ping()
        await context.session.send_tool_list_changed()
    finally:
        reset(entered)
    assert surroundings() == (None, None, None)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("kind", ["well", "refused", "crash"])
async def test_a_call_leaves_no_context_behind(
    kind: str, slow: bool, fronts: Callable[[FastMCP[Any]], AbstractAsyncContextManager[Any]]
) -> None:
    mcp: FastMCP[Any] = FastMCP("internals", middleware=[CallsThrough()] if slow else [])

    @mcp.tool
    async def act(kind: str) -> str:
        """See all of them, and end in one of three ways."""
        seen.append(None in surroundings())
        if kind == "well":
            return kind
        raise ToolError("no") if kind == "refused" else RuntimeError

    seen: list[bool] = []
    async with fronts(mcp) as served:
        before = surroundings()
        answer = await served.http.post("/v1/internals/act", json={"kind": kind})
        assert (answer.status_code, seen) == ({"well": 200, "refused": 400, "crash": 500}[kind], [False])
        assert surroundings() == before


def surroundings() -> tuple[object, ...]:
    return tuple(variable.get(None) for variable in (fastmcp_request_ctx, _current_context, _current_server))


async def test_a_crash_and_a_raised_tool_error_can_be_distinguished() -> None:
    mcp: FastMCP[Any] = FastMCP("internals")

    @mcp.tool
    async def fail(kind: str) -> str:
        """Fail in one of three ways."""
        if kind == "crash":
            raise RuntimeError("secret")
        try:
            raise KeyError("x")
        except KeyError as error:
            raise ToolError("refused") from (error if kind == "caused" else None)

    for kind, crashed in (("crash", True), ("caused", False), ("plain", False)):
        with pytest.raises(ToolError) as raised:
            await mcp.call_tool("fail", {"kind": kind})
        assert is_crash(raised.value) is crashed
