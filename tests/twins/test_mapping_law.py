"""A law: arguments arrive over HTTP as they arrive over MCP, by query and by body, or are refused by both.

But for booleans, NaN and infinities in a number's place, which FastMCP takes and twins refuse.
"""

import datetime
import enum
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal
from urllib.parse import urlencode

import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from fastmcp import FastMCP
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import from_json, to_json

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
        a_choice: Literal[1, "one", "2"] | None = None,
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


POINTS = st.fixed_dictionaries({"x": INTEGERS | st.booleans() | TEXT}, optional={"label": TEXT | st.none(), "y": INTEGERS})
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "a_int": INTEGERS | FLOATS | st.booleans() | TEXT | st.sampled_from(["1", "01", " 1", "1.0", "1e2", "+1", "1_0", "٣"]),
    "a_float": INTEGERS | FLOATS | st.booleans() | TEXT | st.sampled_from(["1e5", ".5", "nan", "-inf", "Infinity", "NaN"]),
    "a_bool": st.booleans() | INTEGERS | TEXT | st.sampled_from(["yes", "off", "TRUE", "1", "true"]),
    "a_text": TEXT | st.sampled_from(["1", "null", "true", "[]", '"x"']),
    "a_day": st.dates().map(str) | TEXT | INTEGERS | st.none(),
    "a_color": st.sampled_from(["red", "blue", "green"]) | TEXT,
    "a_level": st.sampled_from([1, 2, 3, "1", True]) | TEXT,
    "a_choice": st.sampled_from([1, "one", "2", 3, "two"]),
    "a_maybe": INTEGERS | st.none() | st.booleans() | TEXT,
    "some_ints": st.lists(INTEGERS | st.booleans() | TEXT, max_size=4),
    "some_texts": st.lists(TEXT, max_size=4),
    "some_points": st.lists(POINTS, max_size=3),
    "some_lists": st.lists(st.lists(INTEGERS | st.booleans(), max_size=2), max_size=2),
    "a_pair": st.tuples(INTEGERS | st.booleans(), TEXT).map(list),
    "a_point": POINTS | ANY_JSON,
    "a_map": st.dictionaries(TEXT, INTEGERS | st.booleans() | TEXT, max_size=3),
}
CALLS = st.fixed_dictionaries({}, optional=ARGUMENTS)


def has_false_number(arguments: dict[str, Any]) -> bool:
    points = [*arguments.get("some_points", ()), arguments.get("a_point")]
    numbers = [
        *(arguments.get(name) for name in ("a_int", "a_float", "a_level", "a_maybe")),
        *arguments.get("some_ints", ()),
        *(number for each in arguments.get("some_lists", ()) for number in each),
        *arguments.get("a_pair", ())[:1],
        *arguments.get("a_map", {}).values(),
        *(point.get("x") for point in points if isinstance(point, dict)),
    ]
    try:
        if not math.isfinite(float(arguments.get("a_float", 0))):
            return True
    except ValueError:
        pass  # a text that is no number at all
    return any(isinstance(number, bool) for number in numbers)


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


def as_query(arguments: dict[str, Any]) -> str:
    pairs = [(name, as_text(each)) for name, value in arguments.items() for each in (value if isinstance(value, list) else [value])]
    return urlencode(pairs)


NO_TEXT: dict[str, tuple[type, ...]] = {
    "a_int": (int, float),
    "a_float": (int, float),
    "a_bool": (bool,),
    "a_level": (int, float, type(None)),
    "a_maybe": (int, float, type(None)),
    "some_ints": (int, float),
    "a_choice": (int,),
    "a_point": (dict,),
    "a_map": (dict,),
}


def only_spellable(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a query can say: no empty list, no true where a number is meant; and "1" is 1 where no text is taken."""
    said = {
        name: [meant(name, each) for each in value] if isinstance(value, list) else meant(name, value) for name, value in arguments.items()
    }
    return {name: value for name, value in said.items() if value != [] and all(fits(name, each) for each in many(value))}


def many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def fits(name: str, value: Any) -> bool:
    kinds = (*NO_TEXT.get(name, (str, list, dict, int)), str)
    return (
        isinstance(value, kinds)
        and (bool in kinds or not isinstance(value, bool))
        and not (name in ("a_point", "a_map") and isinstance(value, str))
    )


def meant(name: str, value: Any) -> Any:
    if name in NO_TEXT and name != "a_choice" and isinstance(value, str):
        try:
            spelled = from_json(value.encode(), allow_inf_nan=False)
        except ValueError:
            return value
        return spelled if fits(name, spelled) else value
    return value


@pytest.fixture(scope="module")
def call(fronts: Any) -> Iterator[Callable[[str, dict[str, Any]], tuple[Any, httpx.Response]]]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(fronts(everything_server())) as running:

        async def both(method: str, arguments: dict[str, Any]) -> tuple[Any, httpx.Response]:
            over_mcp = await running.over_mcp("everything", **arguments)
            if method == "GET":
                return over_mcp, await running.http.get("/everything?" + as_query(arguments))
            return over_mcp, await running.http.post("/everything", json=arguments)

        yield lambda method, arguments: portal.call(both, method, arguments)


def check(over_mcp: Any, response: httpx.Response) -> None:
    if over_mcp is None:
        assert response.status_code == 422, response.text
    else:
        assert response.status_code == 200, response.text
        assert response.json() == over_mcp


OFTEN = settings(max_examples=3 * settings.default.max_examples, suppress_health_check=[HealthCheck.too_slow])


@OFTEN
@given(CALLS)
def test_a_body_means_the_same_as_a_call_over_mcp(call: Any, arguments: dict[str, Any]) -> None:
    over_mcp, response = call("POST", arguments)
    check(None if has_false_number(arguments) else over_mcp, response)


@OFTEN
@given(CALLS.map(only_spellable))
def test_a_query_means_the_same_as_a_call_over_mcp(call: Any, arguments: dict[str, Any]) -> None:
    over_mcp, response = call("GET", arguments)
    check(None if has_false_number(arguments) else over_mcp, response)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("sent", ["unknown", "a_Int", "self", "tool", "ctx"])
def test_an_unknown_argument_is_refused_on_both(call: Any, sent: str, method: str) -> None:
    over_mcp, response = call(method, {sent: 1})
    assert over_mcp is None
    check(over_mcp, response)
