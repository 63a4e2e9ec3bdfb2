"""One contract per tool, both ways: what is published of a result is what is sent, or nothing is charged."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from uuid import UUID

import httpx2
import pytest
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware
from fastmcp.tools import FunctionTool, Tool
from fastmcp.tools.base import ToolResult
from fastmcp.tools.tool_transform import ArgTransform
from jsonschema_rs import validator_for
from mcp_types import CallToolResult, TextContent
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime, PlainSerializer, WithJsonSchema, field_serializer, model_serializer
from service.conftest import FRAMES, UNLIMITED
from typing_extensions import TypedDict

from campus import Building, free
from campus.testing import open_campus
from twins.tool.results import InvalidResultProblem, ResultWriter

# FastMCP writes what a tool returned with pydantic, which warns of values of another type than is declared
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:(?s)Pydantic serializer warnings")]


class Point(BaseModel):
    """A place."""

    x: int
    label: str = ""


class Tree(BaseModel):
    """A node."""

    below: "list[Tree]" = []


class Odd(BaseModel):
    """A member whose serializer says nothing of its type."""

    n: int

    @field_serializer("n")
    def as_text(self, n: int):  # type: ignore[no-untyped-def]  # on purpose
        return f"number {n}"


class Whole(BaseModel):
    """A model whose serializer says nothing of its type."""

    n: int

    @model_serializer
    def as_other(self):  # type: ignore[no-untyped-def]  # on purpose
        return {"other": str(self.n)}


class Measured(BaseModel):
    """A number and a time."""

    value: float
    at: datetime


class Colour(Enum):
    """A colour."""

    RED = "red"


class Row(TypedDict):
    """A row."""

    n: int


class Pair(NamedTuple):
    """Two of them."""

    a: int
    b: str


@dataclass
class Plain:
    """A dataclass."""

    n: int
    at: time


FITS: dict[str, tuple[Any, Any]] = {
    "a text": (str, "x"),
    "a naive datetime": (datetime, datetime(2026, 1, 2, 3)),
    "a zoned datetime": (datetime, datetime(2026, 1, 2, 3, tzinfo=UTC)),
    "a datetime that is always zoned": (AwareDatetime, datetime(2026, 1, 2, 3, tzinfo=UTC)),
    "a datetime that is never zoned": (NaiveDatetime, datetime(2026, 1, 2, 3)),
    "a naive time": (time, time(3, 4)),
    "half a second": (timedelta, timedelta(seconds=0.5)),
    "less than no time": (timedelta, timedelta(seconds=-3)),
    "days": (timedelta, timedelta(days=400)),
    "a day": (date, date(2026, 1, 2)),
    "a decimal": (Decimal, Decimal("1.50")),
    "nothing for a number": (float | None, None),
    "a model": (Point, Point(x=1)),
    "the object of a model": (Point, {"x": 1, "label": "a"}),
    "a tree": (Tree, Tree(below=[Tree(), Tree(below=[Tree()])])),
    "an untyped serializer": (Odd, Odd(n=1)),
    "an untyped serializer of a whole model": (Whole, Whole(n=1)),
    "an untyped serializer in a list": (list[Odd], [Odd(n=1)]),
    "an untyped serializer of an annotation": (Annotated[int, PlainSerializer(lambda n: f"{n}!")], 1),
    "a list of times": (list[datetime], [datetime(2026, 1, 2)]),
    "naive times by name": (dict[str, datetime], {"a": datetime(2026, 1, 2)}),
    "a model with a naive time": (Measured, Measured(value=1, at=datetime(2026, 1, 2))),
    "a dataclass": (Plain, Plain(1, time(3))),
    "a typed dict": (Row, {"n": 1}),
    "a named tuple": (Pair, Pair(1, "x")),
    "a tuple": (tuple[int, str], (1, "x")),
    "a set": (set[int], {1, 2}),
    "an enum": (Colour, Colour.RED),
    "a literal": (Literal["a", "b"], "a"),
    "an id": (UUID, UUID(int=1)),
    "numbers beyond 64 bits": (int, 2**70),
    "alternatives": (Point | None, None),
    "anything": (dict[str, Any], {"a": [1, None, "x"], "b": 1e300}),
}
BREAKS: dict[str, tuple[Any, Any]] = {
    "an infinity": (float, math.inf),
    "no number": (float, math.nan),
    "no number where null is published": (float | None, math.nan),
    "an infinity in a member that may be null": (dict[str, float | None], {"a": math.inf, "b": None}),
    "an infinity in anything": (dict[str, Any], {"a": [math.inf]}),
    "an infinity of an untyped tool": (Any, {"a": math.inf}),
    "an infinity in a model": (Measured, Measured.model_construct(value=-math.inf, at=datetime(2026, 1, 2))),
    "null for a text": (str, None),
    "null for a model": (Point, None),
    "another object for a model": (Point, {"y": 1}),
    "a text for a model": (Point, "x=1"),
    "another model": (Point, Measured(value=1, at=datetime(2026, 1, 2))),
    "a member of another type": (Point, Point.model_construct(x="one", label="")),
    "a member that is missing": (Point, Point.model_construct(label="")),
    "a number that is too large": (Annotated[int, Field(le=5)], 6),
    "a text that is too long": (Annotated[str, Field(max_length=2)], "abc"),
    "another pattern": (Annotated[str, Field(pattern="^[a-z]+$")], "ABC"),
    "too few of them": (Annotated[list[int], Field(min_length=2)], [1]),
    "a text for a number": (int, "1"),
    "a float for an integer": (int, 1.5),
    "another literal": (Literal["a", "b"], "c"),
    "another row": (Row, {"n": "x"}),
    "texts for numbers": (list[int], [1, "2"]),
    "a list for an object": (dict[str, int], [1]),
    "a tuple of another length": (tuple[int, str], (1,)),
    "the same twice in a set": (set[int], [1, 1]),
    "another id": (UUID, "not-an-id"),
    "a naive time where zones are promised": (AwareDatetime, datetime(2026, 1, 2)),
    "half of a character": (str, "a\ud800"),
    "half of a character in a model": (Point, Point(x=1, label="b").model_copy(update={"label": "\udfff"})),
    "half of a character in anything": (dict[str, Any], {"a": "\ud800"}),
    "half of a character of an untyped tool": (Any, "\ud800"),
    "half of a character in an object of an untyped tool": (Any, {"a": ["\ud800"]}),
    "a finished result without what is promised": (Point, ToolResult(content="x")),
    "a finished result of another shape": (Point, ToolResult(structured_content={"y": 1})),
    "a finished text with half of a character": (Any, ToolResult(content=[TextContent.model_construct(type="text", text="\ud800")])),
}


def returning(annotation: Any, value: Any, *, name: str = "give", is_async: bool = False) -> FunctionTool:
    def give() -> Any:
        return value() if callable(value) else value

    async def give_later() -> Any:
        return give()

    function: Callable[..., Any] = give_later if is_async else give
    function.__name__ = name
    function.__annotations__["return"] = annotation
    return FunctionTool.from_function(function, name=name, description="Gives it.", annotations={"readOnlyHint": True}, meta=free())


class Passes(Middleware):
    """Middleware that takes part in calls and changes nothing."""

    async def on_call_tool(self, context: Any, call_next: Any) -> Any:
        return await call_next(context)


@pytest.mark.parametrize("way", ["direct", "through its server"])
async def test_what_is_published_is_what_is_sent_and_anything_else_is_an_invalid_result(way: str) -> None:
    mcp: FastMCP[Any] = FastMCP("Forms")
    for number, (annotation, value) in enumerate([*FITS.values(), *BREAKS.values()]):
        mcp.add_tool(returning(annotation, value, name=f"t{number}", is_async=number % 2 == 0))
    if way != "direct":
        mcp.add_middleware(Passes())
    async with open_campus(forms=Building(mcp), tables=UNLIMITED) as campus:
        async with campus.mcp() as client:
            listed = {tool.name: tool.output_schema for tool in await client.list_tools()}
            for number, form in enumerate([*FITS, *BREAKS]):
                over_http = (await campus.http.get(f"/v1/forms/t{number}")).json()
                over_mcp = await client.call_tool_mcp(f"t{number}", {})
                if form in BREAKS:
                    assert (over_http["status"], over_http["code"]) == (500, "invalid_result"), form
                    assert (over_mcp.is_error, over_mcp.structured_content["code"]) == (True, "invalid_result"), form
                    continue
                assert not over_mcp.is_error, (form, over_mcp)
                assert over_http == over_mcp.structured_content, form
                assert validator_for(listed[f"t{number}"], validate_formats=True).is_valid(over_http), (form, over_http)
        assert len(campus.wrong.sentences) == 2 * len(BREAKS)
        campus.wrong.sentences.clear()


async def forgets() -> str:
    return "late"


async def test_a_coroutine_that_nobody_awaited_is_an_invalid_result_and_one_of_a_plain_function_is_awaited() -> None:
    mcp: FastMCP[Any] = FastMCP("Forgetful")
    mcp.add_tool(returning(str, forgets, name="awaited"))
    for annotation in (str, Any):
        name = f"lost_{annotation.__name__ if annotation is str else 'any'}"
        mcp.add_tool(returning(annotation, forgets, name=name, is_async=True))
    mcp.add_tool(returning(dict[str, Any], lambda: {"a": [forgets()]}, name="inside"))
    async with open_campus(a=Building(mcp)) as campus:
        for frame in FRAMES:
            over = replace(campus, frame=frame)
            assert (await over.call("awaited")).data == "late"
            for name in ("lost_str", "lost_any", "inside"):
                with pytest.raises(AssertionError, match=f"{name}: .*nobody awaited: write await"):
                    await over.call(name)


async def test_an_authors_test_fails_with_what_was_returned_what_was_published_and_where() -> None:
    mcp: FastMCP[Any] = FastMCP("Points")
    mcp.add_tool(returning(Point, Point.model_construct(x="one", label="here"), name="give"))
    async with open_campus(a=Building(mcp)) as campus:
        for frame in FRAMES:
            with pytest.raises(AssertionError) as raised:
                await replace(campus, frame=frame).call("give")
            for words in ("give: ", "/x: ", 'not of type "integer"', '"x":"one"', '{"type":"integer"}', "test_contract.py:"):
                assert words in str(raised.value), raised.value


async def test_strangers_are_told_no_value_and_the_log_says_where_the_tool_is(caplog: pytest.LogCaptureFixture) -> None:
    tool = returning(Point, Point.model_construct(x="a secret", label=""), name="give")
    with pytest.raises(InvalidResultProblem) as raised:
        ResultWriter(tool).write(tool.fn())
    (record,) = caplog.records
    assert "test_contract.py:" in vars(record)["at"]
    assert '/x: it is not of type "integer"' in record.getMessage()
    assert "secret" not in f"{raised.value} {record.getMessage()}"


class Vouched(BaseModel):
    """A result whose author vouches for it."""

    always_conforms: ClassVar[bool] = True

    n: int


async def test_a_model_that_always_conforms_is_compared_in_tests_alone() -> None:
    wrong = Vouched.model_construct(n="x")
    tool = returning(Vouched, wrong)
    assert ResultWriter(tool).write(wrong) == b'{"n":"x"}'
    with pytest.raises(InvalidResultProblem):
        ResultWriter(tool, reveals=True).write(wrong)
    with pytest.raises(InvalidResultProblem):
        ResultWriter(tool).write({"n": "x"})


API = {
    "openapi": "3.0.3",
    "info": {"title": "Api", "version": "1"},
    "paths": {
        "/things": {
            "post": {
                "operationId": "make",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "required": ["count"],
                                "additionalProperties": False,
                                "properties": {"count": {"type": "integer", "maximum": 9}, "kind": {"enum": ["a", "b"]}},
                            }
                        }
                    },
                },
                "responses": {
                    "200": {
                        "description": "It.",
                        "content": {
                            "application/json": {
                                "schema": {"type": "object", "required": ["made"], "properties": {"made": {"type": "integer"}}}
                            }
                        },
                    }
                },
            }
        }
    },
}


class Made(BaseModel):
    """What was made."""

    made: int


class Kinds:
    """One tool of every kind, each with the arguments `count`, a number up to 9, and `kind`; `seen` is what reached them."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.answer: Any = None
        self.server: FastMCP[Any] = FastMCP("Kinds")

        def make(count: Annotated[int, Field(le=9)], kind: Literal["a", "b"] = "a") -> Made:
            self.seen.append((count, kind))
            return Made(made=count) if self.answer is None else self.answer

        def make_far(count: Annotated[int, Field(le=9)], kind: Literal["a", "b"] = "a") -> CallToolResult:
            self.seen.append((count, kind))
            return CallToolResult(content=[], structured_content={"made": count} if self.answer is None else self.answer)

        async def requested(request: httpx2.Request) -> httpx2.Response:
            self.seen.append(json.loads(request.content))
            return httpx2.Response(200, json={"made": 1} if self.answer is None else self.answer)

        original = FunctionTool.from_function(make, name="function", meta=free())
        self.server.add_tool(original)
        renamed = {"n": ArgTransform(name="count"), "kind": ArgTransform(), "hidden": ArgTransform(hide=True, default="x")}

        def inner(n: Annotated[int, Field(le=9)], kind: Literal["a", "b"] = "a", hidden: str = "") -> Made:
            return make(n, kind)

        self.server.add_tool(Tool.from_tool(FunctionTool.from_function(inner), name="transformed", transform_args=renamed, meta=free()))
        far: FastMCP[Any] = FastMCP("Far")
        far.add_tool(FunctionTool.from_function(make_far, name="proxied", output_schema=Made.model_json_schema()))
        self.server.mount(create_proxy(far))
        near: FastMCP[Any] = FastMCP("Near")
        near.add_tool(FunctionTool.from_function(make, name="mounted"))
        self.server.mount(near)
        api = httpx2.AsyncClient(transport=httpx2.MockTransport(requested), base_url="http://api.example")
        self.server.mount(FastMCP.from_openapi(API, client=api, name="Api"))


KINDS = ["function", "transformed", "proxied", "mounted", "make"]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "count"),
    ({"count": "many"}, "count"),
    ({"count": 10}, "count"),
    ({"count": True}, "count"),
    ({"count": 1, "kind": "c"}, "kind"),
    ({"count": 1, "kind": None}, "kind"),
    ({"count": 1, "more": 1}, "more"),
]


FREE = {"*": {"free": True}}


@pytest.mark.parametrize("way", ["direct", "behind middleware"])
async def test_wrong_arguments_are_named_as_they_were_sent_and_reach_no_tool(way: str) -> None:
    kinds = Kinds()
    if way != "direct":
        kinds.server.add_middleware(Passes())
    async with open_campus(a=Building(kinds.server), tools=FREE, tables=UNLIMITED) as campus:
        for kind, frame in product(KINDS, FRAMES):
            over = replace(campus, frame=frame)
            for arguments, name in WRONG if kind != "make" else WRONG[:-1]:  # what FastMCP publishes of an API's operation takes any name
                reply = await over.call(kind, **arguments)
                assert (reply.status, reply.code) == (422, "invalid_request"), (kind, frame, arguments, reply)
                place = "body" if frame == "http" else "arguments"
                assert [error["pointer"] for error in reply.data["errors"]] == [f"/{place}/{name}"], (kind, arguments, reply.data)
            assert kinds.seen == [], (kind, frame)
            assert (await over.call(kind, count=3)).data == {"made": 1 if kind == "make" else 3}
            assert len(kinds.seen) == 1, (kind, frame)
            kinds.seen.clear()


async def test_a_result_of_any_kind_of_tool_that_is_not_as_published_is_an_invalid_result() -> None:
    kinds = Kinds()
    kinds.answer = {"made": "one"}
    async with open_campus(a=Building(kinds.server), tools=FREE) as campus:
        for kind, frame in product(KINDS, FRAMES):
            with pytest.raises(AssertionError, match=f"{kind}: "):
                await replace(campus, frame=frame).call(kind, count=3)


async def test_what_an_author_writes_into_an_input_schema_by_hand_is_checked_too() -> None:
    mcp: FastMCP[Any] = FastMCP("Hands")
    seen: list[Any] = []

    @mcp.tool(meta=free(), annotations={"readOnlyHint": True})
    def take(
        code: Annotated[str, WithJsonSchema({"type": "string", "pattern": "^[A-Z]{2}$"})],
        size: Annotated[int, Field(json_schema_extra={"multipleOf": 5})] = 5,
        note: Annotated[str, Field(json_schema_extra={"examples": ["a"]})] = "",
    ) -> str:
        """Take it."""
        seen.append((code, size, note))
        return code

    async with open_campus(a=Building(mcp)) as campus:
        for frame in FRAMES:
            over = replace(campus, frame=frame)
            for arguments, name in (({"code": "ab"}, "code"), ({"code": "AB", "size": 7}, "size")):
                reply = await over.call("take", **arguments)
                assert (reply.code, [each["pointer"].split("/")[-1] for each in reply.data["errors"]]) == ("invalid_request", [name])
            assert seen == []
            assert (await over.call("take", code="AB", size=10, note="x")).data == "AB"
            seen.clear()
