"""A tool that calls another tool of its server over MCP: the inner call is part of the outer one, and so is its failure."""

from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

from campus import Problem, access, free
from campus.testing import open_campus

pytestmark = pytest.mark.anyio


def tools() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Nest")

    @mcp.tool(meta=access())
    async def inner(text: str) -> str:
        """Paid, and fails for one text."""
        if text == "bad":
            raise Problem(409, "bad_text", "that text is bad")
        return text

    @mcp.tool(meta=access())
    async def outer(text: str, ctx: Context) -> str:
        """Call the other tool, and return its outcome."""
        try:
            return str((await ctx.fastmcp.call_tool("inner", {"text": text})).structured_content)
        except ToolError as error:
            return f"raised {type(error).__name__}: {error}"

    @mcp.tool(meta=free())
    async def blind(text: str, ctx: Context) -> str:
        """Call the other tool, and let it fail."""
        return str((await ctx.fastmcp.call_tool("inner", {"text": text})).structured_content)

    return mcp


async def test_a_nested_call_that_fails_raises_to_the_tool_that_made_it_or_fails_it() -> None:
    async with open_campus(nest=tools(), frame="mcp") as campus:
        key = await campus.key("nest")
        assert (await campus.call("outer", key=key, text="good")).data == "{'result': 'good'}"
        assert (await campus.call("outer", key=key, text="bad")).data == "raised Problem: that text is bad"
        assert (await campus.call("blind", text="good")).data == "{'result': 'good'}"
        assert (await campus.call("blind", text="bad")).status >= 400
        assert (await campus.call("inner", text="good")).status == 402
