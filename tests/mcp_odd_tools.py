"""A FastMCP server with tools of every kind: what they take, return, raise and ask for."""

import asyncio
import enum
from collections.abc import Iterator
from datetime import date
from functools import cached_property
from typing import Annotated, Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.apps.config import AppConfig
from fastmcp.dependencies import CurrentHeaders, Depends
from fastmcp.exceptions import NotFoundError, ToolError
from fastmcp.server.dependencies import get_context, get_http_request
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.types import Image
from mcp import MCPError
from mcp_types import CallToolResult, InputRequiredResult, TextContent
from prefab_ui.actions.mcp import CallTool
from prefab_ui.app import PrefabApp
from prefab_ui.components import Button, Text
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from twins import Problem


class Point(BaseModel, frozen=True):
    """A frozen model, whose bytes are kept."""

    x: int
    y: float | None = None
    note: str = '\u2028 ä 😀 "quoted" \\ </script>'


class Constants(BaseModel):
    """It would write numbers that JSON has not."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    x: float


class Remembering(BaseModel):
    """What it works out once is no member."""

    x: int

    @cached_property
    def twice(self) -> int:
        return 2 * self.x


class Color(enum.Enum):
    """An enumeration."""

    RED = "red"


ORIGIN = Point(x=0)


def refuse_seven(number: int) -> int:
    if number == 7:
        raise Problem(400, "seven", "Seven is not accepted.")
    if number == 8:
        raise RuntimeError("a validator that fails")
    return number


async def point() -> Point:
    return Point(x=1)


async def kept_point() -> Point:
    return ORIGIN


async def points(n: int = 2) -> list[Point]:
    return [Point(x=index) for index in range(n)]


async def text(say: str = "hi é") -> str:
    return say


async def number() -> int:
    return 5


async def real() -> float:
    return 1e16


async def truth() -> bool:
    return True


async def nothing() -> None:
    return None


async def perhaps(x: bool = False) -> str | None:
    return "yes" if x else None


async def plain_dict() -> dict[str, Any]:
    return {"a": None, "b": [1, None], "ü": {"c": 1.5}}


async def large_number() -> dict[str, Any]:
    return {"n": 2**70}


async def not_a_number() -> dict[str, Any]:
    return {"x": float("nan"), "y": [float("inf")]}


async def no_real() -> float:
    return float("nan")


async def constants() -> Constants:
    return Constants(x=float("inf"))


async def remembering() -> list[Remembering]:
    made = Remembering(x=1)
    assert made.twice == 2
    return [made]


async def half_a_character() -> str:
    return "\ud800"


async def surrogate() -> dict[str, Any]:
    return {"x": "\ud800"}


async def untyped(kind: str = "dict"):  # type: ignore[no-untyped-def]  # what it returns is not declared
    kinds = {"dict": {"a": None}, "list": [1, 2], "str": "s", "int": 3, "none": None, "empty": [], "model": ORIGIN, "text": "é\u2028"}
    return kinds[kind]


async def mistyped() -> Point:
    return {"x": "no point"}  # type: ignore[return-value]  # on purpose


async def day(on: date) -> date:
    return on


async def color(which: Color = Color.RED) -> dict[str, Any]:
    return {"which": which.value}


async def literal(mode: Literal["a", "b"], n: Annotated[int, Field(ge=0, le=9)] = 1) -> dict[str, Any]:
    return {"mode": mode, "n": n}


async def nested(point: Point, tags: list[str] | None = None) -> dict[str, Any]:
    return {"point": point.model_dump(), "tags": tags}


async def strict(n: Annotated[int, AfterValidator(refuse_seven)]) -> int:
    return n


async def blocks() -> list[TextContent]:
    return [TextContent(type="text", text="one"), TextContent(type="text", text="two")]


async def picture() -> Image:
    return Image(data=b"\x89PNG", format="png")


async def raw() -> bytes:
    return b"\xff\xfe"


async def made() -> ToolResult:
    return ToolResult(content="short", structured_content={"a": 1}, meta={"m": 1})


async def made_error() -> ToolResult:
    return ToolResult(content="no", structured_content={"why": None}, is_error=True)


async def wire_result() -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="é")], is_error=True, structured_content={"b": None})


async def refuses() -> dict[str, Any]:
    raise Problem(409, "taken", "It is taken.", since="today")


async def tool_error() -> dict[str, Any]:
    raise ToolError("Plainly no.")


async def crash() -> dict[str, Any]:
    raise RuntimeError("the text of a crash")


async def body_crash() -> dict[str, Any]:
    return {"never": Point.model_validate({"x": "no"})}


async def not_found() -> dict[str, Any]:
    raise NotFoundError("nothing there")


async def needs_sampling() -> dict[str, Any]:
    raise MCPError(code=-32021, message="needs sampling")


async def other_mcp_error() -> dict[str, Any]:
    raise MCPError(code=-32602, message="of the tool")


async def late() -> dict[str, Any]:
    await asyncio.sleep(1)
    return {}


def plain(x: int = 1) -> dict[str, Any]:
    return {"x": x}


def generator(n: int = 2) -> Iterator[int]:
    yield from range(n)


async def asks_context(ctx: Context) -> dict[str, Any]:
    await ctx.info("hello")
    await ctx.report_progress(1, 2)
    return {"method": "c"}


async def hidden_context() -> dict[str, Any]:
    await get_context().info("hello")
    return {"path": get_http_request().url.path}


async def request_id() -> dict[str, Any]:
    return {"id": str(get_context().request_id)}


async def samples(ctx: Context) -> dict[str, Any]:
    return {"x": str(await ctx.sample("hi"))}


async def elicits(ctx: Context) -> dict[str, Any]:
    return {"x": str(await ctx.elicit("hi", str))}


async def roots(ctx: Context) -> dict[str, Any]:
    return {"x": str(await ctx.list_roots())}


async def state(ctx: Context) -> dict[str, Any]:
    await ctx.set_state("a", 1)
    request = ctx.request_context
    assert request is not None
    return {"x": await ctx.get_state("a"), "version": request.protocol_version, "meta": request.meta}


async def logs(ctx: Context) -> dict[str, Any]:
    await ctx.debug("d")
    await ctx.error("e")
    raise ToolError("after a log")


async def headers_of(headers: dict[str, str] = CurrentHeaders()) -> dict[str, Any]:  # noqa: B008 # FastMCP's way
    return {"accept": headers.get("accept")}


async def needs(n: int = Depends(lambda: 7)) -> dict[str, Any]:
    return {"n": n}


async def who(ctx: Context) -> dict[str, Any]:
    return {"session": ctx.session_id is not None, "client": str(ctx.client_id), "transport": str(ctx.transport), "id": str(ctx.request_id)}


async def calls_another(ctx: Context) -> dict[str, Any]:
    result = await ctx.fastmcp.call_tool("literal", {"mode": "b"})
    return {"other": result.structured_content}


async def asks_first():  # type: ignore[no-untyped-def]  # what it returns is not declared
    return InputRequiredResult(request_state="s", input_requests={})


async def interface() -> PrefabApp:
    return PrefabApp(view=Button(label="count", on_click=CallTool("number")))


async def part_of_an_interface():  # type: ignore[no-untyped-def]  # what it returns is not declared
    return Text(content="hello")


async def names_tools() -> dict[str, Any]:
    """An interface as data: FastMCP writes a tool's name that it does not know as the tool's identity."""
    return {"view": {"action": "toolCall", "tool": "save"}, "_meta": {"fastmcp": {"toolNames": {"save": f"{'0' * 12}_save"}}}}


TOOLS = (
    *(point, kept_point, points, text, number, real, truth, nothing, perhaps, plain_dict, large_number, not_a_number, surrogate, untyped),
    *(mistyped, day, color, literal, nested, strict, blocks, picture, raw, made, made_error, wire_result, refuses, tool_error, crash),
    *(body_crash, not_found, needs_sampling, other_mcp_error, plain, generator, asks_context, hidden_context, request_id, samples, elicits),
    *(roots, state, logs, headers_of, needs, who, calls_another, asks_first, no_real, constants, remembering),
    *(interface, part_of_an_interface, names_tools),
)
CALLS: tuple[tuple[str, Any], ...] = (
    *((tool.__name__, {}) for tool in (*TOOLS, late)),
    *(
        ("shown_point", {}),
        ("number", None),
        ("number", {"x": 1}),
        ("old", {}),
        ("no_such_tool", {}),
        ("perhaps", {"x": True}),
        ("perhaps", {"x": "true"}),
    ),
    *(("points", {"n": n}) for n in (0, "3", 2.0, 2.5, True, None, [1])),
    *(("text", {"say": say}) for say in ("", "\u2028😀\x85", "a\x00b", "1e999", '"', "\\")),
    *(("day", {"on": on}) for on in ("2026-01-01", "x", 1e9)),
    *(("literal", {"mode": "a"}), ("literal", {"mode": "c", "n": 99}), ("color", {"which": "red"}), ("color", {"which": "blue"})),
    *(("strict", {"n": n}) for n in (1, 7, 8, "7")),
    *(("nested", {"point": {"x": 1}}), ("nested", {"point": {"x": "q"}, "tags": [1]}), ("nested", {"point": {"x": True}})),
    *(("untyped", {"kind": kind}) for kind in ("list", "str", "int", "none", "empty", "model", "text", "missing")),
    *(("plain", {"x": x}) for x in (2**63, 2**64, -(2**63), "7", 7.0)),
)
"""Calls of all tools: good ones, and ones with arguments that are wrong or on the border."""


def odd_server(**options: Any) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("Odd ends ü", instructions="Tools of every kind.", version="1.2", **options)
    for function in TOOLS:
        mcp.tool(function)
    mcp.tool(half_a_character)
    mcp.tool(late, timeout=0.05)
    mcp.tool(kept_point, name="shown_point", app=AppConfig(resource_uri="ui://odd/point.html"))
    mcp.tool(number, name="old", version="1")
    mcp.tool(real, name="old", version="2")
    return mcp
