"""A tool's results over HTTP and MCP; stored bytes, ETags and 304."""

import datetime
import enum
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import count
from typing import Any, ClassVar
from uuid import UUID

import mcp_types
import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from fastmcp.utilities.types import Image
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_serializer

from twins import RAW_RESULTS, raw_result, route

pytestmark = pytest.mark.anyio
ALWAYS = {"readOnlyHint": True}


class Color(enum.Enum):
    RED = "red"


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    size: float = 1.0


class Whole(BaseModel):
    model_config = ConfigDict(frozen=True)

    parts: tuple[Part, ...] = ()
    at: datetime.datetime = datetime.datetime(2026, 8, 21, 12, tzinfo=datetime.UTC)
    renamed: int = Field(default=1, alias="other")

    @computed_field
    def count(self) -> int:
        return len(self.parts)


class Listed(BaseModel):
    model_config = ConfigDict(frozen=True)

    parts: list[int]


class Loose(BaseModel):
    number: int


@dataclass
class Data:
    color: Color
    price: Decimal


RETURNS: dict[str, tuple[Any, Any]] = {
    "model": (Whole, Whole(parts=(Part(name="a"),))),
    "optional": (Part | None, None),
    "dataclass": (Data, Data(Color.RED, Decimal("1.10"))),
    "list": (list[Part], [Part(name="é")]),
    "mapping": (dict[str, Any], {"at": datetime.date(2026, 8, 21), "raw": {1, 2}}),
    "text": (str, 'a "quoted" text'),
    "number": (float, 1e300),
    "nothing": (None, None),
    "date": (datetime.timedelta, datetime.timedelta(minutes=5)),
    "uuid": (UUID, UUID(int=7)),
    "union": (int | str, "x"),
    "any": (Any, {"a": [1, None]}),
    "result": (ToolResult, ToolResult(content="short", structured_content={"long": 1})),
    "protocol": (mcp_types.CallToolResult, mcp_types.CallToolResult(content=[], structured_content={"own": True})),
}


def returning(annotation: Any, value: Any, **options: Any) -> FastMCP[Any]:
    async def tool() -> Any:
        """Return it."""
        return value

    tool.__annotations__["return"] = annotation
    server: FastMCP[Any] = FastMCP("results")
    server.tool(**({"meta": route("GET|POST /tool"), "annotations": {"readOnlyHint": True}} | options))(tool)
    return server


def untyped(value: Any) -> FastMCP[Any]:
    async def untyped():  # type: ignore[no-untyped-def]
        return value

    server: FastMCP[Any] = FastMCP("results")
    server.tool(meta=route("GET /tool"))(untyped)
    return server


@pytest.mark.parametrize("kind", RETURNS)
async def test_http_answers_with_the_structured_content_of_mcp(fronts: Any, kind: str) -> None:
    async with fronts(returning(*RETURNS[kind])) as each:
        answer = await each.http.get("/tool")
        over_mcp = await each.over_mcp("tool")
        assert answer.status_code == 200
        assert answer.json() == (over_mcp if over_mcp is not None else {"result": None})


class Free(Tool):
    """A tool of an author's own class, whose output schema is no object."""

    value: Any = None

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return raw_result(self.value)


@pytest.mark.parametrize("value", [{"a": 1}, *([[1, 2], [], "text"] if RAW_RESULTS else [])], ids=str)
async def test_a_result_of_no_object_schema_is_a_member_over_http_whatever_mcp_clients_get(fronts: Any, value: Any) -> None:
    schema = {"anyOf": [{"type": "array"}, {"$ref": "#/$defs/Loose"}, {"type": "string"}], "$defs": {"Loose": {"type": "object"}}}
    server: FastMCP[Any] = FastMCP("results", tools=[Free(name="free", parameters={"type": "object"}, output_schema=schema, value=value)])
    async with fronts(server) as each:
        answer = await each.http.post("/v1/results/free", json={})
        document = (await each.http.get("/openapi.json")).json()
        assert await each.over_mcp("free") == value
    assert (answer.status_code, answer.json()) == (200, {"result": value})
    promised = document["components"]["schemas"]["FreeResult"]
    Draft202012Validator({**promised, "components": document["components"]}).validate(answer.json())
    assert promised["required"] == ["result"]


OBJECT = {"type": "object"}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"$ref": "#/$defs/A"}, {"type": ["object", "null"]}], "$defs": {"A": OBJECT}},
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"allOf": [{"$ref": "#/$defs/A"}, {"description": "as above"}], "$defs": {"A": {"properties": {"a": {}}}}},
        {"$ref": "#/$defs/A", "$defs": {"A": {"oneOf": [OBJECT, {"$ref": "#/$defs/A"}]}}},
    ],
    ids=["anyOf", "type first", "allOf", "recursive"],
)
async def test_a_schema_that_allows_objects_only_leaves_the_body_as_it_is(fronts: Any, schema: dict[str, Any]) -> None:
    tool = Free(name="free", parameters=OBJECT, output_schema=schema, value={"a": 1, "b": 2})
    async with fronts(FastMCP("results", tools=[tool])) as each:
        assert (await each.http.post("/v1/results/free", json={})).json() == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("value", "answer"), [("plain", "plain"), ([1, 2], [1, 2]), (None, None), (5, 5), (Part(name="a"), {"name": "a", "size": 1.0})]
)
async def test_an_untyped_result_that_is_not_an_object_is_wrapped(fronts: Any, value: Any, answer: Any) -> None:
    async with fronts(untyped(value)) as each:
        expected = answer if isinstance(answer, dict) else {"result": answer}
        assert (await each.http.get("/tool")).json() == expected


@pytest.mark.parametrize(
    "value", [Image(data=b"png", format="png"), b"\xff", ToolResult(content="text"), [Image(data=b"png", format="png"), "and words"]]
)
async def test_images_and_the_like_are_answered_as_mcp_content(fronts: Any, value: Any) -> None:
    async with fronts(untyped(value)) as each:
        over_mcp = await each.mcp.call_tool_mcp("untyped", {})
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in over_mcp.content]
        assert (await each.http.get("/tool")).json() == {"content": blocks}


LINK = mcp_types.ResourceLink(type="resource_link", uri="https://example.com/chart", name="chart")
PICTURE = mcp_types.ImageContent(type="image", data="cG5n", mime_type="image/png")
WORDS = mcp_types.TextContent(type="text", text="one for models")


@pytest.mark.parametrize("through_server", [False, True])
async def test_links_and_images_beside_structured_content_reach_callers_of_http(fronts: Any, through_server: bool) -> None:
    result = ToolResult(content=[WORDS, LINK, PICTURE], structured_content={"long": 1})
    server = returning(ToolResult, result, output_schema={"type": "object", "properties": {"long": {"type": "integer"}}})
    if through_server:
        server.add_middleware(Middleware())
    async with fronts(server) as each:
        blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in (LINK, PICTURE)]
        assert (await each.http.get("/tool")).json() == {"long": 1, "_content": blocks}
        document = (await each.http.get("/openapi.json")).json()
        assert "_content" in document["paths"]["/tool"]["get"]["responses"]["200"]["description"]


async def test_a_value_that_has_no_json_form_is_answered_as_text(fronts: Any) -> None:
    async with fronts(untyped({"raw": Opaque()})) as each:
        over_mcp = await each.mcp.call_tool_mcp("untyped", {})
        assert (await each.http.get("/tool")).json()["content"][0]["text"] == over_mcp.content[0].text


@pytest.mark.parametrize(("annotation", "value"), [(dict[str, Any], [1]), (dict[str, Any], {"raw": b"\xff"})])
async def test_a_result_that_does_not_match_its_declared_type_is_a_fault(fronts: Any, annotation: Any, value: Any) -> None:
    async with fronts(returning(annotation, value)) as each:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydantic warns that the value is not of its type
            assert (await each.http.get("/tool")).status_code == 500


async def test_a_result_that_is_a_problem_is_that_problem(fronts: Any) -> None:
    body = {
        "type": "/errors/x",
        "title": "T",
        "status": 402,
        "code": "access_required",
        "detail": "pay",
        "unlock": [1],
        "request_id": "old",
    }
    async with fronts(returning(ToolResult, ToolResult(content="pay", structured_content=body, is_error=True))) as each:
        answer = await each.http.get("/tool")
        assert answer.status_code == 402
        assert answer.json() == {
            "type": "about:blank",
            "title": "Payment Required",
            "status": 402,
            "code": "access_required",
            "detail": "pay",
            "unlock": [1],
        }


async def test_a_tool_that_asks_its_caller_a_question_is_a_409(fronts: Any) -> None:
    asked = mcp_types.InputRequiredResult(request_state="x")
    async with fronts(returning(mcp_types.InputRequiredResult, asked)) as each:
        assert (await each.http.get("/tool")).json()["code"] == "input_required"


async def test_the_route_sets_a_status_other_than_200(fronts: Any) -> None:
    async with fronts(returning(Loose, Loose(number=1), meta=route("POST /tool", status=201))) as each:
        assert (await each.http.post("/tool")).status_code == 201


async def test_answers_are_private_unless_the_route_allows_caching(fronts: Any) -> None:
    async with fronts(returning(Loose, Loose(number=1))) as each:
        answer = await each.http.get("/tool")
        assert answer.headers["cache-control"] == "private, no-store"
        assert "etag" not in answer.headers


async def test_a_cacheable_answer_has_an_etag_and_is_answered_with_304_later(fronts: Any) -> None:
    cache = "public, max-age=300"
    async with fronts(returning(Loose, Loose(number=1), meta=route("GET|POST /tool", cache=cache))) as each:
        first = await each.http.get("/tool")
        etag = first.headers["etag"]
        assert first.headers["cache-control"] == cache
        for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
            again = await each.http.get("/tool", headers={"If-None-Match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert (await each.http.get("/tool", headers={"If-None-Match": '"other"'})).status_code == 200
        assert (await each.http.head("/tool", headers={"If-None-Match": etag})).status_code == 304
        assert (await each.http.post("/tool", headers={"If-None-Match": etag})).status_code == 200


class Opaque:
    def __str__(self) -> str:
        return "opaque"


class Shelf:
    """A tool's data, as a building holds it between two refreshes."""

    def __init__(self, value: Any) -> None:
        self.value = value


def serving(shelf: Shelf) -> FastMCP[Any]:
    async def tool() -> Any:
        """Return what is on the shelf."""
        return shelf.value

    tool.__annotations__["return"] = type(shelf.value)
    server: FastMCP[Any] = FastMCP("results")
    server.tool(meta=route("GET /tool", cache="public"))(tool)
    return server


def note(name: str) -> bool:
    Costly.written.append(name)
    return False


class Costly(BaseModel):
    model_config = ConfigDict(frozen=True)
    written: ClassVar[list[str]] = []

    name: str = Field(exclude_if=note)


async def test_a_frozen_object_that_is_returned_often_is_encoded_at_most_twice(fronts: Any) -> None:
    shelf = Shelf(Costly(name="kept"))
    async with fronts(serving(shelf)) as each:
        answers = [await each.http.get("/tool") for _ in range(5)]
        assert {(answer.text, answer.headers["etag"]) for answer in answers} == {('{"name":"kept"}', answers[0].headers["etag"])}
        assert Costly.written == ["kept", "kept"]
        shelf.value = Costly(name="new")
        renewed = await each.http.get("/tool")
        assert (renewed.json(), renewed.headers["etag"] == answers[0].headers["etag"]) == ({"name": "new"}, False)
        assert Costly.written == ["kept", "kept", "new"]


class Hashed(BaseModel):
    """It can be hashed, as its author says, and changes all the same."""

    number: int

    def __hash__(self) -> int:
        return 1


class Counted(BaseModel):
    """It is frozen, and its code says something else each time."""

    model_config = ConfigDict(frozen=True)
    counted: ClassVar[Iterator[int]] = count()

    name: str = ""

    @computed_field
    def times(self) -> int:
        return next(self.counted)


class Spelled(Counted):
    @field_serializer("name")
    def spell(self, name: str) -> str:
        return f"{name}{next(self.counted)}"


class Holding(BaseModel):
    model_config = ConfigDict(frozen=True)

    held: tuple[Counted, ...] = (Counted(),)


class Named(BaseModel):
    """A member that is called as a part of pydantic's own description of the model."""

    model_config = ConfigDict(frozen=True)

    metadata: tuple[Counted, ...] = (Counted(),)


@pytest.mark.parametrize("value", [Counted(), Spelled(), Holding(), Named()])
async def test_a_frozen_object_that_its_authors_code_writes_is_encoded_each_time(fronts: Any, value: Any) -> None:
    async with fronts(serving(Shelf(value))) as each:
        assert len({(await each.http.get("/tool")).text for _ in range(4)}) == 4


class Open(BaseModel):
    """It is frozen, but for what is in the members that it does not name."""

    model_config = ConfigDict(frozen=True, extra="allow")


@pytest.mark.parametrize("value", [Listed(parts=[1]), Open(parts=[1]), Loose(number=1), Hashed(number=1), {"parts": [1]}])
async def test_an_object_that_can_change_is_encoded_each_time(fronts: Any, value: Any) -> None:
    async with fronts(serving(Shelf(value))) as each:
        for _ in range(3):
            before = (await each.http.get("/tool")).json()
        if isinstance(value, Loose | Hashed):
            value.number = 2
        else:
            (value["parts"] if isinstance(value, dict) else value.parts).append(2)
        after = (await each.http.get("/tool")).json()
        assert after != before
