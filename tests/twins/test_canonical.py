"""The canonical form: the same for calls that a tool cannot tell apart, and different for all others."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import pytest
from fastmcp import FastMCP
from fastmcp.tools import FunctionTool
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field, SecretStr

from twins.fastmcp import every_tool
from twins.tool.direct_call import DirectTool, plain

pytestmark = pytest.mark.anyio


class Colour(Enum):
    """A word of few."""

    RED = "red"


class Box(BaseModel):
    """A model with a default of its own."""

    width: int
    height: int = 2


@dataclass
class Point:
    """A dataclass."""

    x: float


async def order(
    day: date,
    count: int = 3,
    period: float = 60,
    name: Annotated[str, AfterValidator(str.strip)] = "a",
    tags: frozenset[str] = frozenset(),
    box: Box | None = None,
    limit: int | None = 20,
    colour: Colour = Colour.RED,
    size: Annotated[int, Field(default=7)] = 7,
    weight: Annotated[int, Field(alias="kilo-grams")] = 1,
) -> str:
    """A tool with defaults of every kind."""
    return "x"


@pytest.fixture
async def direct() -> DirectTool:
    server: FastMCP[Any] = FastMCP("Orders")
    server.tool(order)
    [tool] = await every_tool(server)
    assert isinstance(tool, FunctionTool)
    return DirectTool(server, tool)


DAY = {"day": "2026-01-02"}


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, {}),
        ({"count": 3}, {}),
        ({"count": "3"}, {}),
        ({"period": 60}, {}),
        ({"period": 60.0}, {}),
        ({"period": "60.5"}, {"period": 60.5}),
        ({"name": " a "}, {}),
        ({"name": " b "}, {"name": "b"}),
        ({"tags": []}, {}),
        ({"tags": ["y", "x", "y"]}, {"tags": ["x", "y"]}),
        ({"box": None}, {}),
        ({"box": {"width": "1"}}, {"box": {"width": 1, "height": 2}}),
        ({"limit": None}, {"limit": None}),
        ({"limit": 20}, {}),
        ({"colour": "red"}, {}),
        ({"size": 7}, {}),
        ({"kilo-grams": 5}, {"kilo-grams": 5}),
    ],
    ids=str,
)
async def test_default_values_are_left_out_and_others_are_in_validated_form(
    direct: DirectTool, sent: dict[str, Any], said: dict[str, Any]
) -> None:
    assert direct.canonical(DAY | sent, direct.validate(DAY | sent)) == DAY | said


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "count": st.integers(2, 4) | st.integers(2, 4).map(str),
    "period": st.sampled_from([60, 60.0, "60", 61]),
    "name": st.sampled_from(["a", " a", "b"]),
    "tags": st.lists(st.sampled_from("xy"), max_size=3),
    "box": st.none() | st.fixed_dictionaries({"width": st.integers(1, 2)}, optional={"height": st.integers(1, 2)}),
    "limit": st.none() | st.integers(19, 20),
}
CALLS = st.fixed_dictionaries({}, optional=VALUES).map(lambda more: DAY | more)


@given(CALLS, CALLS)
async def test_two_calls_have_the_same_canonical_form_exactly_if_the_tool_receives_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    server: FastMCP[Any] = FastMCP("Orders")
    server.tool(order)
    [tool] = await every_tool(server)
    assert isinstance(tool, FunctionTool)
    direct = DirectTool(server, tool)
    ours, theirs = direct.validate(one), direct.validate(other)
    assert (direct.canonical(one, ours) == direct.canonical(other, theirs)) == (ours == theirs)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({Colour.RED: {3, 1, 2}}, {"red": [1, 2, 3]}),
        (Point(5.0), {"x": 5}),
        ((Decimal("1.50"), b"\xff"), ["1.50", "_w=="]),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        ([True, 1, None], [True, 1, None]),
        (SecretStr("hush"), "hush"),
    ],
    ids=str,
)
def test_values_of_every_type_become_json(value: Any, said: Any) -> None:
    assert plain(value) == said
