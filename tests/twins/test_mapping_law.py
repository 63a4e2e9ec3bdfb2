"""A law: arguments arrive over HTTP as they arrive over MCP, by query and by body, or are refused by both."""

import datetime
import enum
from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import urlencode

import anyio
import httpx
import pytest
from fastmcp import FastMCP
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import to_json

from twins import route

TEXT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=5)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT, lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXT, each, max_size=3)
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(BaseModel):
    x: int
    label: str | None = None


def everything_server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("law")

    @mcp.tool(meta=route("GET|POST /everything"))
    async def everything(
        a_int: int = 0,
        a_float: float = 0.0,
        a_bool: bool = False,
        a_text: str = "",
        a_day: datetime.date | None = None,
        a_color: Color | None = None,
        a_level: Level | None = None,
        a_choice: Literal[1, "one", True] | None = None,
        a_maybe: int | None = None,
        some_ints: list[int] | None = None,
        some_texts: set[str] | None = None,
        some_points: list[Point] | None = None,
        some_lists: list[list[int]] | None = None,
        a_pair: tuple[int, str] | None = None,
        a_point: Point | None = None,
        a_map: dict[str, int] | None = None,
    ) -> dict[str, Any]:
        """Show what arrived, with its types."""
        return {name: repr(sorted(value) if isinstance(value, set) else value) for name, value in locals().items() if name[0] in "as"}

    return mcp


POINTS = st.fixed_dictionaries({"x": INTEGERS | TEXT}, optional={"label": TEXT | st.none(), "y": INTEGERS})
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "a_int": INTEGERS | FLOATS | st.booleans() | TEXT | st.sampled_from(["1", "01", " 1", "1.0", "1e2", "+1", "1_0", "٣"]),
    "a_float": INTEGERS | FLOATS | TEXT | st.sampled_from(["1e5", ".5", "nan", "-inf", "Infinity", "NaN"]),
    "a_bool": st.booleans() | INTEGERS | TEXT | st.sampled_from(["yes", "off", "TRUE", "1", "true"]),
    "a_text": TEXT | st.sampled_from(["1", "null", "true", "[]", '"x"']),
    "a_day": st.dates().map(str) | TEXT | INTEGERS | st.none(),
    "a_color": st.sampled_from(["red", "blue", "green"]) | TEXT,
    "a_level": st.sampled_from([1, 2, 3, "1"]) | TEXT,
    "a_choice": st.sampled_from([1, "one"]),
    "a_maybe": INTEGERS | st.none() | TEXT,
    "some_ints": st.lists(INTEGERS | TEXT, max_size=4),
    "some_texts": st.lists(TEXT, max_size=4),
    "some_points": st.lists(POINTS, max_size=3),
    "some_lists": st.lists(st.lists(INTEGERS, max_size=2), max_size=2),
    "a_pair": st.tuples(INTEGERS, TEXT).map(list),
    "a_point": POINTS | ANY_JSON,
    "a_map": st.dictionaries(TEXT, INTEGERS | TEXT, max_size=3),
}
CALLS = st.fixed_dictionaries({}, optional=ARGUMENTS)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


def as_query(arguments: dict[str, Any]) -> str:
    pairs = [(name, as_text(each)) for name, value in arguments.items() for each in (value if isinstance(value, list) else [value])]
    return urlencode(pairs)


def spellable(arguments: dict[str, Any]) -> bool:
    """A query spells no empty list, and text and number alike: what only JSON tells apart is left to the body."""
    empty = any(value == [] for value in arguments.values())
    textual = {"a_text", "a_day", "a_color", "some_texts", "a_choice"}
    unlike = any(name in textual and not isinstance(value, str | list) for name, value in arguments.items())
    return not (empty or unlike or isinstance(arguments.get("a_point"), list))


def check(send: Callable[[httpx.AsyncClient, dict[str, Any]], Any], arguments: dict[str, Any], open_fronts: Any) -> None:
    async def both() -> tuple[Any, httpx.Response]:
        async with open_fronts(everything_server()) as fronts:
            return await fronts.over_mcp("everything", **arguments), await send(fronts.http, arguments)

    over_mcp, response = anyio.run(both)
    if over_mcp is None:
        assert response.status_code == 422, response.text
    else:
        assert response.status_code == 200, response.text
        assert response.json() == over_mcp


OFTEN_ENOUGH = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@OFTEN_ENOUGH
@given(CALLS)
def test_a_body_says_what_a_call_over_mcp_says(fronts: Any, arguments: dict[str, Any]) -> None:
    check(lambda http, said: http.post("/everything", json=said), arguments, fronts)


@OFTEN_ENOUGH
@given(CALLS.filter(spellable))
def test_a_query_says_what_a_call_over_mcp_says(fronts: Any, arguments: dict[str, Any]) -> None:
    check(lambda http, said: http.get("/everything?" + as_query(said)), arguments, fronts)


@pytest.mark.parametrize("sent", ["unknown", "a_Int", "self", "ctx"])
def test_an_unknown_argument_is_refused_on_both(fronts: Any, sent: str) -> None:
    check(lambda http, said: http.post("/everything", json=said), {sent: 1}, fronts)
    check(lambda http, said: http.get("/everything?" + as_query(said)), {sent: 1}, fronts)
