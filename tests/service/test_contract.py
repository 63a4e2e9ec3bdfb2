"""One contract per tool, both ways: what is published of a result is what is sent, or nothing is charged."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from uuid import UUID

import jsonschema
import pytest
from fastmcp import FastMCP
from fastmcp.tools import FunctionTool
from fastmcp.tools.base import ToolResult
from mcp_types import TextContent
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime, PlainSerializer, field_serializer, model_serializer
from typing_extensions import TypedDict

from campus import Building, free
from campus.testing import Frame, TestCampus, open_campus

# FastMCP writes what a tool returned with pydantic, which warns of values of another type than is declared
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:(?s)Pydantic serializer warnings")]
STRICT = jsonschema.Draft202012Validator.FORMAT_CHECKER


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


async def never_awaited() -> str:
    return "late"


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
    """A free tool with this return annotation that returns this value; a callable is called for it."""

    def give() -> Any:
        return value() if callable(value) else value

    async def give_later() -> Any:
        return give()

    function: Callable[..., Any] = give_later if is_async else give
    function.__name__ = name
    function.__annotations__["return"] = annotation
    return FunctionTool.from_function(function, name=name, description="Gives it.", annotations={"readOnlyHint": True}, meta=free())


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=["direct", "through its server"])
async def given(request: pytest.FixtureRequest) -> Any:
    """A campus with a tool for each form, called directly and through its server."""
    mcp: FastMCP[Any] = FastMCP("Forms")
    for number, (annotation, value) in enumerate([*FITS.values(), *BREAKS.values()]):
        mcp.add_tool(returning(annotation, value, name=f"t{number}", is_async=number % 2 == 0))
    if request.param != "direct":
        from fastmcp.server.middleware import Middleware

        class Passes(Middleware):
            async def on_call_tool(self, context: Any, call_next: Any) -> Any:
                return await call_next(context)

        mcp.add_middleware(Passes())
    async with open_campus(forms=Building(mcp)) as campus:
        async with campus.mcp() as client:
            listed = {tool.name: tool.output_schema for tool in await client.list_tools()}
        yield campus, listed


async def results_of(campus: TestCampus, name: str) -> Iterator[Any]:
    over_http = (await campus.http.get(f"/v1/forms/{name}")).json()
    async with campus.mcp() as client:
        over_mcp = await client.session.send_raw(name) if False else await client.call_tool_mcp(name, {})
    return iter((over_http, over_mcp))


@pytest.mark.parametrize("form", FITS)
async def test_what_is_published_is_what_is_sent(form: str, given: tuple[TestCampus, dict[str, Any]]) -> None:
    campus, listed = given
    name = f"t{list(FITS).index(form)}"
    over_http, over_mcp = await results_of(campus, name)
    assert not over_mcp.is_error, over_mcp
    for content in (over_http, over_mcp.structured_content):
        jsonschema.validate(content, listed[name], format_checker=STRICT)
    assert over_http == over_mcp.structured_content


@pytest.mark.parametrize("form", BREAKS)
async def test_what_is_not_as_published_is_an_invalid_result_over_both_frames(form: str, given: tuple[TestCampus, dict[str, Any]]) -> None:
    campus, _ = given
    name = f"t{len(FITS) + list(BREAKS).index(form)}"
    over_http, over_mcp = await results_of(campus, name)
    campus.wrong.sentences.clear()
    assert (over_http["status"], over_http["code"]) == (500, "invalid_result")
    assert over_mcp.is_error
    assert over_mcp.structured_content["code"] == "invalid_result"
