"""Where arguments are sent, and the errors for invalid ones."""

import datetime
from typing import Annotated, Any

import pytest
from fastmcp import FastMCP
from fastmcp.exceptions import ValidationError as FastMCPValidationError
from fastmcp.tools import Tool
from pydantic import AfterValidator, BaseModel, Field, ValidationError
from typing_extensions import TypeAliasType

from twins import Problem, Twins, route, unstorable_reason
from twins.tool.errors import invalid_arguments
from twins.tool.operation import operation_of

pytestmark = pytest.mark.anyio


def parsed_day(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise Problem(400, "invalid_date", "a day is written YYYY-MM-DD") from None


def not_a_secret(text: str) -> str:
    if text.startswith("sk_"):
        raise ValueError(f"{text} looks like a secret")
    if text == "tiny":
        raise ValueError("the name is too short")
    return text


class Inner(BaseModel):
    size: int


class Tree(BaseModel):
    left: "Tree | None" = None
    inner: Inner | str = ""


Numbers = TypeAliasType("Numbers", "int | list[Numbers]")
"""A type that contains itself."""


def hostile_validator(value: Any) -> Any:
    raise ValueError(f"cannot take {value['secret']}")


def server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("args")

    @mcp.tool(meta=route("GET|POST /beat/{id}/{secret}", query={"status": "st"}))
    async def beat(id: str, secret: str, status: str = "ok", capsule: Any = None) -> dict[str, Any]:
        """Beat."""
        return {"id": id, "secret": secret, "status": status, "capsule": capsule}

    @mcp.tool(meta=route("DELETE /things/{id}", query={"secret": "s"}))
    async def remove(id: int, secret: str | None = None) -> dict[str, Any]:
        """Remove."""
        return {"id": id, "secret": secret}

    @mcp.tool(meta=route("GET /archive/{day}"))
    async def archive(day: Annotated[str, AfterValidator(parsed_day)]) -> str:
        """One day."""
        return str(day)

    @mcp.tool(meta=route("POST /name"))
    async def name(name: Annotated[str, AfterValidator(not_a_secret)], tree: Tree | None = None) -> str:
        """Say a name."""
        return name

    @mcp.tool(meta=route("POST /nested"))
    async def nested(value: Annotated[Any, AfterValidator(hostile_validator)]) -> str:
        """Never takes anything."""
        return "never"

    @mcp.tool(meta=route("GET /search"))
    async def search(where: Inner, tags: list[str] | None = None, limit: Annotated[int, Field(alias="max", le=10)] = 5) -> dict[str, Any]:
        """Search."""
        return {"size": where.size, "tags": tags, "limit": limit}

    @mcp.tool(meta=route("GET|POST /count"))
    async def count(numbers: Numbers) -> dict[str, Any]:
        """Count."""
        return {"numbers": numbers}

    return mcp


async def test_the_arguments_of_one_tool_come_from_path_query_and_body(fronts: Any) -> None:
    async with fronts(server()) as each:
        got = await each.http.get("/beat/m1/s1", params={"st": "fail"})
        assert got.json() == {"id": "m1", "secret": "s1", "status": "fail", "capsule": None}
        posted = await each.http.post("/beat/m1/s1", json={"status": "ok", "capsule": {"step": [1, None]}})
        assert posted.json() == {"id": "m1", "secret": "s1", "status": "ok", "capsule": {"step": [1, None]}}
        bare = await each.http.post("/beat/m1/s1")
        assert bare.json() == {"id": "m1", "secret": "s1", "status": "ok", "capsule": None}


async def test_delete_takes_its_arguments_from_the_query(fronts: Any) -> None:
    async with fronts(server()) as each:
        assert (await each.http.delete("/things/7", params={"s": "x"})).json() == {"id": 7, "secret": "x"}
        refused = await each.http.request("DELETE", "/things/7", json={"secret": "x"})
        assert (refused.status_code, refused.json()["code"]) == (400, "unexpected_body")
        assert "in the query" in refused.json()["detail"]


async def test_an_object_in_the_query_is_json_and_a_list_is_a_repeated_name(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.get("/search", params={"where": '{"size": 3}', "tags": ["a", "b"], "max": 7})
        assert answer.json() == {"size": 3, "tags": ["a", "b"], "limit": 7}


async def test_what_may_be_a_list_or_an_object_is_either_in_the_query(fronts: Any) -> None:
    mcp: FastMCP[Any] = FastMCP("unions")

    @mcp.tool(meta=route("GET|POST /either"))
    async def either(what: list[str] | Inner | None = None) -> dict[str, Any]:
        return {"what": what.model_dump() if isinstance(what, Inner) else what}

    async with fronts(mcp) as each:
        for texts, value in (
            (['{"size": 3}'], {"size": 3}),
            (["a"], ["a"]),
            (["a", "b"], ["a", "b"]),
            (['["a", "b"]'], ["a", "b"]),
            (["null"], None),
        ):
            answer = await each.http.get("/either", params={"what": texts})
            assert (answer.status_code, answer.json()) == (200, {"what": value}), texts
            assert answer.json() == (await each.http.post("/either", json={"what": value})).json(), texts


async def test_an_argument_may_be_of_a_type_that_contains_itself(fronts: Any) -> None:
    async with fronts(server()) as each:
        numbers = [1, [2, [3]]]
        assert (await each.http.get("/count", params={"numbers": ["1", "[2, [3]]"]})).json() == {"numbers": numbers}
        assert (await each.http.post("/count", json={"numbers": numbers})).json() == {"numbers": numbers}


async def test_unusual_encodings_of_a_path_reach_the_same_twin(fronts: Any) -> None:
    async with fronts(server()) as each:
        assert (await each.http.get("/%61rchive/2026-08-%321")).json() == {"result": "2026-08-21"}
        assert (await each.http.get("/beat/a%20b%C3%A9/x")).json()["id"] == "a bé"


INVALID = (
    ("GET", "/beat/m/s?status=x", "/query/status", "unknown"),
    ("GET", "/beat/m/s?id=x", "/query/id", "unknown"),
    ("GET", "/beat/m/s?st=a&st=b", "/query/st", "repeated"),
    ("GET", "/beat/m/s?st=%00", "/query/st", "not_storable"),
    ("GET", "/beat/%00/s", "/path/id", "not_storable"),
    ("GET", "/beat/m/s?st=%ff", "/query", "not_utf8"),
    ("GET", "/beat/m/s?a~%2Fb=1", "/query/a~0~1b", "unknown"),
    ("POST", "/beat/m/s?st=x", "/query/st", "unknown"),
    ("DELETE", "/things/seven", "/path/id", "int_parsing"),
    ("DELETE", "/things/" + "9" * 30, "/path/id", "not_storable"),
    ("DELETE", "/things/7?secret=x", "/query/secret", "unknown"),
    ("GET", "/search", "/query/where", "missing"),
    ("GET", "/search?where={", "/query/where", "model_type"),
    ("GET", "/search?where={}", "/query/where/size", "missing"),
    ("GET", "/search?where={%22size%22:%22x%22}", "/query/where/size", "int_parsing"),
    ("GET", "/search?where={%22size%22:1}&max=11", "/query/max", "less_than_equal"),
)


async def test_an_invalid_argument_is_named_by_the_place_where_it_was_sent(fronts: Any) -> None:
    async with fronts(server()) as each:
        for method, path, pointer, code in INVALID:
            answer = await each.http.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), path
            assert [(error["pointer"], error["code"]) for error in answer.json()["errors"]] == [(pointer, code)], path


INVALID_BODIES: tuple[tuple[Any, Any], ...] = (
    ({}, [("/body/name", "missing")]),
    ({"name": 1}, [("/body/name", "string_type")]),
    ({"name": "a", "nam": 1}, [("/body/nam", "unknown")]),
    ({"name": "tiny"}, [("/body/name", "invalid")]),
    ({"name": "a", "tree": {"left": {"left": {"inner": {"size": "x"}}}}}, None),
)


async def test_each_invalid_field_of_a_body_is_named(fronts: Any) -> None:
    async with fronts(server()) as each:
        for body, errors in INVALID_BODIES:
            answer = await each.http.post("/name", json=body)
            assert answer.status_code == 422, body
            found = [(error["pointer"], error["code"]) for error in answer.json()["errors"]]
            if errors is None:  # a union: one finding per arm, and no arm's name in any pointer
                assert {pointer for pointer, _ in found} == {"/body/tree/left/left/inner/size", "/body/tree/left/left/inner"}
            else:
                assert found == errors


async def test_an_error_never_repeats_the_value(fronts: Any) -> None:
    async with fronts(server()) as each:
        for body in ({"name": "sk_12345"}, {"name": ["sk_12345"]}, {"name": "x", "tree": "sk_12345"}):
            answer = await each.http.post("/name", json=body)
            assert answer.status_code == 422
            assert "sk_12345" not in answer.text
        kept = await each.http.post("/name", json={"name": "tiny"})
        assert kept.json()["errors"][0]["detail"] == "the name is too short"


async def test_a_validators_words_are_left_out_if_they_repeat_a_part_of_the_value(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.post("/nested", json={"value": {"more": [1, ["x"], ""], "secret": "hunter2"}})
        assert (answer.status_code, answer.json()["errors"][0]["detail"]) == (422, "is not valid")


async def test_a_validators_problem_is_sent_unchanged(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.get("/archive/20260821x")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_date")


async def test_errors_of_the_server_are_worded_like_those_of_the_twin() -> None:
    mcp = server()
    operation = next(each for each in (await Twins.open(mcp)).operations if each.name == "name")
    with pytest.raises(FastMCPValidationError) as raised:
        await mcp.call_tool("name", {"nam": 1})
    assert isinstance(raised.value.__cause__, ValidationError)
    problem = invalid_arguments(raised.value.__cause__, operation, "POST", {"nam": 1})
    assert [(error["pointer"], error["code"]) for error in problem.errors] == [("/body/name", "missing"), ("/body/nam", "unknown")]


async def test_a_list_that_is_too_long_is_told_its_bound(fronts: Any) -> None:
    mcp: FastMCP[Any] = FastMCP("Lists")

    @mcp.tool(meta=route("POST /names"))
    async def names(names: Annotated[list[str], Field(max_length=2)]) -> int:
        """Names."""
        return len(names)

    async with fronts(mcp) as each:
        answer = await each.http.post("/names", json={"names": ["a", "b", "c"]})
        assert answer.json()["errors"][0]["detail"] == "should have at most 2 items, not 3"


BODIES: tuple[tuple[bytes, dict[str, str], int, str | None], ...] = (
    (b"{", {"Content-Type": "application/json"}, 400, "invalid_json"),
    (b'{"name": "a\\u0000"}', {"Content-Type": "application/json"}, 400, "invalid_json"),
    (b"[]", {"Content-Type": "application/json"}, 422, "invalid_request"),
    (b"null", {"Content-Type": "application/json"}, 422, "invalid_request"),
    (b'{"name": "a"}', {}, 415, "unsupported_media_type"),
    (b'{"name": "a"}', {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
    (b'{"name": "a"}', {"Content-Type": "application/json; charset=latin-1"}, 415, "unsupported_media_type"),
    (b'{"name": "a"}', {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415, "unsupported_media_type"),
    (b"", {}, 422, "invalid_request"),
    (b'{"name": "%b"}' % (b"a" * (1 << 20)), {"Content-Type": "application/json"}, 413, "too_large"),
    (b'{"name": "a"}', {"Content-Type": "application/json; charset=UTF-8"}, 200, None),
    (b'{"name": "a"}', {"Content-Type": "application/problem+json"}, 200, None),
    (b'{"name": "a"}', {"Content-Type": "application/json", "Content-Encoding": "identity"}, 200, None),
)


async def test_a_body_is_uncompressed_json_of_limited_size(fronts: Any) -> None:
    async with fronts(server()) as each:
        for content, headers, status, code in BODIES:
            answer = await each.http.post("/name", content=content, headers=headers)
            assert (answer.status_code, answer.json().get("code")) == (status, code), (content[:20], headers)


async def test_a_body_of_just_the_limit_is_read_and_one_byte_more_is_not(fronts: Any) -> None:
    limit = 1 << 16
    headers = {"Content-Type": "application/json"}

    async def chunks(body: bytes) -> Any:
        for start in range(0, len(body), 1 << 12):
            yield body[start : start + (1 << 12)]

    async with fronts(server()) as each:
        for size, status in ((limit, 200), (limit + 1, 413)):
            body = b'{"name": "a"}'.ljust(size)
            for content in (body, chunks(body)):
                assert (await each.http.post("/name", content=content, headers=headers)).status_code == status


async def test_a_chunked_body_of_delete_is_refused_too(fronts: Any) -> None:
    async def chunks() -> Any:
        yield b'{"secret": "x"}'

    async with fronts(server()) as each:
        answer = await each.http.request("DELETE", "/things/7", content=chunks())
    assert (answer.status_code, answer.json()["code"]) == (400, "unexpected_body")


async def test_a_body_may_not_repeat_an_argument_of_the_path(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.post("/beat/m1/s1", json={"id": "m2"})
        assert [error["pointer"] for error in answer.json()["errors"]] == ["/body/id"]


async def test_a_lenient_argument_that_cannot_be_stored_reaches_the_tool_as_it_is(fronts: Any) -> None:
    mcp: FastMCP[Any] = FastMCP("lenient")

    @mcp.tool(meta=route("GET|POST /take", lenient=["value"]))
    async def take(value: Any = None, other: Any = None) -> str:
        """Take it."""
        return unstorable_reason(value) or repr(value)

    headers = {"Content-Type": "application/json"}
    bodies = {
        r'{"value": "\u0000"}': "a text holds the character NUL",
        '{"value": {"a": [NaN, Infinity]}}': "a number is too large, or not a number (NaN)",
        r'{"value": "\udcff", "other": 1}': "a text holds half of a character (a lone surrogate)",
        '{"value": ' + "[" * 300 + "]" * 300 + "}": "it is nested too deeply",
        '{"value": 1e5, "other": 12345678901234567890123}': None,
        '{"other": NaN}': None,
        '{"value": NaN': None,
        "NaN": None,
    }
    async with fronts(mcp) as each:
        for body, reason in bodies.items():
            answer = await each.http.post("/take", content=body, headers=headers)
            assert answer.json().get("result") == reason, body
            assert answer.status_code == (400 if reason is None else 200), body
        assert (await each.http.get("/take?value=%00")).json()["result"] == "a text holds the character NUL"
        assert (await each.http.get("/take?other=%00")).status_code == 422
    with pytest.raises(ValueError, match="lenient= 'nothing' is not one of its arguments"):
        operation_of(Tool.from_function(take_none, meta=route("/x", lenient=["nothing"])), server="s", default_prefix="/v1/s")


def take_none() -> None:
    """Take none."""
