"""`true`, `false` and texts such as NaN are rejected where a tool takes a number, in direct calls and through the server."""

import datetime
import enum
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.middleware import Middleware, MiddlewareContext
from pydantic import BaseModel, Field

from twins import route

pytestmark = pytest.mark.anyio


class Level(enum.IntEnum):
    LOW = 1


class Tree(BaseModel):
    size: float = 0
    flag: bool = False
    left: "Tree | None" = None
    many: list[int] = []
    named: dict[str, int | None] = {}


class Number(BaseModel):
    kind: Literal["number"]
    value: float


class Sum(BaseModel):
    kind: Literal["sum"]
    left: "Term"
    right: "Term"


class Product(BaseModel):
    kind: Literal["product"]
    left: "Term"
    right: "Term"


Term = Annotated[Number | Sum | Product, Field(discriminator="kind")]


class Watching(Middleware):
    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        return await call_next(context)


def server(*middleware: Middleware) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("numbers", middleware=list(middleware))

    @mcp.tool(meta=route("POST /count"))
    async def count(
        whole: int = 0,
        broken: float = 0.0,
        exact: Decimal = Decimal(0),
        maybe: int | None = None,
        text_or_number: int | str = 0,
        bounded: Annotated[int, Field(ge=0, le=9)] = 0,
        chosen: Literal[0, 1] = 0,
        level: Level = Level.LOW,
        span: datetime.timedelta = datetime.timedelta(0),
        many: list[int] | None = None,
        pair: tuple[str, float] | None = None,
        table: dict[str, float] | None = None,
        tree: Tree | None = None,
        trees: list[Tree] | None = None,
        flag: bool = False,
        flag_or_number: bool | int = 0,
        anything: Any = None,
        things: list[Any] | None = None,
        mixed: dict[str, int | bool] | None = None,
        shares: dict[Annotated[str, Field(pattern="^s_")], float] | None = None,
        term: Term | None = None,
    ) -> str:
        """Count."""
        return "counted"

    @mcp.tool(meta=route("GET /many"))
    async def many(tree: Tree | None = None, whole: int = 0, share: float = 0.5) -> str:
        """Count from a query."""
        return "counted"

    return mcp


REFUSED = [
    *((name, True) for name in ("whole", "broken", "exact", "maybe", "text_or_number", "bounded", "chosen", "level", "span")),
    ("whole", False),
    ("many", [1, True]),
    ("many", True),
    ("pair", ["a", False]),
    ("table", {"a": 1.0, "b": True}),
    ("tree", {"size": True}),
    ("tree", {"left": {"left": {"size": True}}}),
    ("tree", {"many": [True]}),
    ("tree", {"named": {"a": None, "b": False}}),
    ("trees", [{"size": 1}, {"left": {"many": [1, False]}}]),
    ("shares", {"s_a": True}),
    ("term", {"kind": "sum", "left": {"kind": "number", "value": True}, "right": {"kind": "number", "value": 1}}),
]
TAKEN = [
    ("flag", True),
    ("flag_or_number", True),
    ("anything", True),
    ("anything", {"a": [True]}),
    ("things", [True, 1]),
    ("tree", {"flag": True, "left": {"flag": False}}),
    ("tree", {"unknown": True}),
    ("mixed", {"a": True, "b": 1}),
    ("whole", 1),
    ("whole", "1"),
    ("broken", 1),
    ("broken", "1e5"),
    ("text_or_number", "NaN"),
    ("anything", "NaN"),
    ("things", ["inf", 1]),
]


@pytest.fixture(params=[(), (Watching(),)], ids=["direct", "through the server"])
def mcp(request: pytest.FixtureRequest) -> FastMCP[Any]:
    return server(*request.param)


async def test_a_boolean_is_not_a_number(fronts: Any, mcp: FastMCP[Any]) -> None:
    async with fronts(mcp) as each:
        for name, value in REFUSED:
            answer = await each.http.post("/count", json={name: value})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), (name, value)
            said = answer.json()["detail"]
            assert said.count(f"body member {name}") == 1, (name, value)
            assert "should be a number, not true or false" in said or "should be a list" in said, (name, value)


INFINITE = ["NaN", " nan ", "-inf", "Infinity", "+INFINITY", "1e999", "-1E+400"]


async def test_a_text_that_spells_no_finite_number_is_none(fronts: Any, mcp: FastMCP[Any]) -> None:
    async with fronts(mcp) as each:
        for text in INFINITE:
            for name, value in (
                ("broken", text),
                ("pair", ["a", text]),
                ("table", {"a": 1.0, "b": text}),
                ("tree", {"left": {"size": text}}),
                ("trees", [{"size": 1}, {"size": text}]),
            ):
                answer = await each.http.post("/count", json={name: value})
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), (name, text)
                assert "should be a finite number" in answer.json()["detail"], (name, text)
                assert text not in answer.json()["detail"], (name, text)


async def test_a_number_of_the_query_is_finite(fronts: Any, mcp: FastMCP[Any]) -> None:
    async with fronts(mcp) as each:
        for text in INFINITE:
            answer = await each.http.get("/many", params={"share": text})
            assert (answer.status_code, answer.json()["detail"]) == (422, "query parameter share should be a finite number"), text
        for share in ("1e3", "0.5"):
            assert (await each.http.get("/many", params={"share": share})).status_code == 200


async def test_a_boolean_is_accepted_where_the_schema_accepts_one(fronts: Any, mcp: FastMCP[Any]) -> None:
    async with fronts(mcp) as each:
        for name, value in TAKEN:
            answer = await each.http.post("/count", json={name: value})
            assert (answer.status_code, answer.json()) == (200, {"result": "counted"}), (name, value)


async def test_a_boolean_in_a_json_text_of_the_query_is_found_too(fronts: Any) -> None:
    async with fronts(server()) as each:
        for query in ("whole=true", "whole=false", 'tree={"size":true}'):
            assert (await each.http.get(f"/many?{query}")).status_code == 422
        assert (await each.http.get('/many?tree={"flag":true}&whole=1')).status_code == 200


async def test_a_tool_of_another_server_is_checked_by_its_schema(fronts: Any) -> None:
    async with fronts(create_proxy(server(), name="proxy")) as each:
        answer = await each.http.post("/v1/proxy/count", json={"whole": True, "tree": {"size": True}})
        assert answer.status_code in (404, 422)
        answer = await each.http.post("/count", json={"whole": True, "tree": {"size": True}})
    assert answer.json()["detail"] == (
        "body member whole should be a number, not true or false; body member tree.size should be a number, not true or false"
    )


async def test_deep_and_long_arguments_are_searched_at_the_cost_of_their_size(fronts: Any) -> None:
    leaf: dict[str, Any] = {"kind": "number", "value": True}
    term = leaf
    for depth in range(60):
        term = {"kind": ("sum", "product")[depth % 2], "left": term, "right": {"kind": "number", "value": 1}}
    async with fronts(server()) as each:
        answer = await each.http.post("/count", json={"term": term})
        assert answer.json()["detail"].endswith(".value should be a number, not true or false")
        leaf["value"] = 1
        assert (await each.http.post("/count", json={"term": term})).status_code == 200
        for many, count in (([True] * 9_000, "more than 5,000"), (["x"] * 9_000, "9,000")):
            answer = await each.http.post("/count", json={"many": many})
            assert answer.json()["errors"][0]["code"] == "too_many_errors"
            assert answer.json()["detail"].startswith(f"the body has {count} values that do not match")
