"""An argument error names every argument in one sentence, for direct calls and for calls through the server."""

from typing import Annotated, Any, Literal

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware, MiddlewareContext
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Discriminator

from twins import FieldError, route
from twins.problems import pointer_to, sentence_of, subject_of

pytestmark = pytest.mark.anyio


class Point(BaseModel):
    x: int
    label: str | None = None


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


def even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


def short(text: str) -> str:
    if len(text) > 3:
        raise ValueError("a name has three letters")
    return text


class Watching(Middleware):
    """Middleware of an author's: with it, calls go through the server."""

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
        return await call_next(context)


def server(*middleware: Middleware) -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("errors", middleware=list(middleware))

    @mcp.tool(meta=route("GET /look/{port}", query={"secret": "s"}))
    async def look(port: str, secret: str, count: int = 1) -> str:
        """Look."""
        return port

    @mcp.tool(meta=route("POST /write"))
    async def write(
        point: Point,
        points: list[Point] = [],  # noqa: B006  # pydantic copies it
        number: Annotated[int, AfterValidator(even)] = 2,
        name: Annotated[str, AfterValidator(short)] = "a",
        size: int | Literal["all"] = 1,
        pet: Annotated[Cat | Dog, Discriminator("kind")] | None = None,
        tags: dict[str, int] | None = None,
    ) -> str:
        """Write."""
        return "written"

    @mcp.tool(meta=route("POST /bare"))
    async def bare() -> str:
        """Take nothing."""
        return "bare"

    return mcp


INVALID: tuple[tuple[str, str, Any, str | None], ...] = (
    ("GET", "/look/brest", None, "query parameter s is required"),
    ("GET", "/look/brest?count=x", None, None),
    ("GET", "/look/brest?secret=x", None, "query parameter s is required; there is no query parameter secret; the other query"),
    ("GET", "/look/brest?s=x&co=1", None, "there is no query parameter co; the query parameters are: s, count"),
    ("GET", "/look/%00?s=%00", None, None),
    ("POST", "/write", {}, "body member point is required"),
    ("POST", "/write", {"point": {}}, "body member point.x is required"),
    ("POST", "/write", {"point": 1}, "body member point should be an object"),
    ("POST", "/write", {"point": {"x": 1}, "points": [{"x": 1}, {"x": "a"}]}, "body member points[1].x should be a valid integer"),
    ("POST", "/write", {"point": {"x": 1}, "number": 3}, "body member number must be even"),
    ("POST", "/write", {"point": {"x": 1}, "name": "long"}, "body member name: a name has three letters"),
    ("POST", "/write", {"point": {"x": 1}, "size": "x"}, "body member size should be a valid integer"),
    ("POST", "/write?a=1", {"point": {"x": 1}}, "there is no query parameter a; the tool takes no query parameters"),
    ("POST", "/bare", {"a": 1}, "there is no body member a; the tool takes no body members"),
)


@pytest.mark.parametrize("middleware", [(), (Watching(),)], ids=["direct", "through the server"])
async def test_each_argument_is_named_once_at_its_place(fronts: Any, middleware: tuple[Middleware, ...]) -> None:
    async with fronts(server(*middleware)) as each:
        for method, path, body, detail in INVALID:
            answer = await each.http.request(method, path, **({} if body is None else {"json": body}))
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), path
            said = answer.json()["detail"]
            assert said.startswith(detail or ""), said
            assert "/query" not in said
            assert "/body" not in said


async def test_unknown_missing_and_invalid_arguments_are_all_in_one_error(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.get("/look/%00?s=a&s=b&count=x&port=brest")
        assert answer.json()["detail"] == (
            "query parameter s is sent more than once; it takes one value; path parameter port: a text holds the character NUL; "
            "query parameter count should be a valid integer, unable to parse string as an integer; "
            "there is no query parameter port"
        )
        body = {"points": [{"x": "a"}], "number": 1, "poin": {"x": 1}, "nam": "a"}
        answer = await each.http.post("/write?x=1", json=body)
    said = answer.json()["detail"]
    for name in ("member point is", "points[0].x", "member number ", "member poin;", "member nam;", "query parameter x"):
        assert said.count(name) == 1, name
    assert said.endswith("; the other body members are: name, size, pet, tags; the tool takes no query parameters")
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert sorted(pointers) == ["/body/nam", "/body/number", "/body/poin", "/body/point", "/body/points/0/x", "/query/x"]


async def test_an_unknown_name_is_shortened_and_made_visible(fronts: Any) -> None:
    names = ["a" * 5000, "line\nbreak", "\u202eright to left", "\x1b[31mred", "with space", "a/b~c"]
    async with fronts(server()) as each:
        answers = [(await each.http.post("/bare", json={name: 1})).json() for name in names]
        nested = (await each.http.post("/write", json={"point": {"x": 1}, "tags": {"\x1b" + "b" * 5000: "hunter2"}})).json()
    texts = [answer["detail"] for answer in answers] + [answer["errors"][0]["pointer"] for answer in answers]
    texts += [nested["detail"], nested["errors"][0]["pointer"]]
    assert all(text.isprintable() and len(text) < 250 for text in texts), texts
    assert answers[4]["detail"].startswith('there is no body member "with space";')
    assert "hunter2" not in str(nested)


async def test_a_discriminator_does_not_repeat_the_value(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.post("/write", json={"point": {"x": 1}, "pet": {"kind": "hunter2" * 50}})
    assert (answer.status_code, "hunter2" in answer.text) == (422, False)
    assert "body member pet" in answer.json()["detail"]


async def test_after_twenty_errors_the_rest_is_counted(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.post("/bare", json={f"field{number}": 1 for number in range(100)})
    said = answer.json()
    assert (len(said["errors"]), said["detail"].count("there is no body member field")) == (20, 20)
    assert "; and 80 more; " in said["detail"]
    assert len(answer.content) < 10_000


NAMES = st.text(max_size=120)


@given(st.lists(st.tuples(st.sampled_from(["missing", "unknown", "invalid"]), NAMES), max_size=40))
def test_the_sentence_has_every_error_and_no_invisible_character(found: list[tuple[str, str]]) -> None:
    errors = [FieldError(pointer_to("arguments", name), code, "is wrong") for code, name in found]
    said = sentence_of(errors, {"arguments": ("first", "second")})
    assert said.isprintable()
    assert all(subject_of(error.pointer) in said for error in errors)
