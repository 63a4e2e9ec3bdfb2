"""The OpenAPI document of a server: valid and complete."""

from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from fastmcp import FastMCP
from fastmcp.tools import Tool
from mcp_types import ToolAnnotations
from openapi_schema_validator import OAS30Validator
from openapi_spec_validator import validate
from pydantic import BaseModel, Field, RootModel, create_model

from twins import Twins, openapi, operations_of, problem_response, route
from twins.documents.schema import NULL

pytestmark = pytest.mark.anyio


def two_entries() -> tuple[type[BaseModel], type[BaseModel]]:
    class Entry(BaseModel):
        rank: int

    first = Entry

    class Entry(BaseModel):  # type: ignore[no-redef]
        title: str

    return first, Entry


ONE, OTHER = two_entries()


class Brief(BaseModel):
    """The list of one day."""

    day: str = Field(description="The day, YYYY-MM-DD.")
    entries: tuple[ONE, ...]  # type: ignore[valid-type]
    before: "Brief | None" = None


class News(BaseModel):
    entries: list[OTHER]  # type: ignore[valid-type]


def server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("News stand", version="0.2.0", instructions="Read all about it.")

    @mcp.tool(meta=route("GET|POST /brief/{day}", query={"secret": "s"}, cache="public"))
    async def brief(day: str, secret: str, limit: int = 5, where: OTHER | None = None, tags: list[str] | None = None) -> Brief:  # type: ignore[valid-type]
        """The brief of one day.

        In order of rank.

        Args:
            day: Which day.
            secret: What opens it.
        """
        raise NotImplementedError

    @mcp.tool(meta=route("DELETE /brief/{day}", status=202), title="Forget it")
    async def forget(day: str) -> None:
        """Forget a day."""

    @mcp.tool(annotations={"readOnlyHint": True})
    async def news() -> News:
        """All news."""
        raise NotImplementedError

    return mcp


async def document(**options: Any) -> dict[str, Any]:
    return openapi((await Twins.open(server())).operations, title="T", version="1", **options)


async def test_the_document_is_valid_and_names_every_operation_once(stranger: FastMCP[Any]) -> None:
    for operations in ((await Twins.open(server())).operations, (await Twins.open(stranger)).operations):
        made = openapi(operations, title="T", version="1")
        validate(made)
        identities = [said["operationId"] for path in made["paths"].values() for said in path.values()]
        assert len(identities) == len(set(identities)) == sum(len(operation.methods) for operation in operations)


async def test_an_operation_is_described_as_its_tool() -> None:
    said = (await document())["paths"]["/brief/{day}"]["get"]
    assert (said["operationId"], said["summary"]) == ("brief", "The brief of one day.")
    assert said["description"] == "The brief of one day.\n\nIn order of rank."
    assert said["parameters"] == [
        {"name": "day", "in": "path", "required": True, "description": "Which day.", "schema": {"type": "string"}},
        {"name": "s", "in": "query", "required": True, "description": "What opens it.", "schema": {"type": "string"}},
        {"name": "limit", "in": "query", "required": False, "schema": {"type": "integer", "default": 5}},
        {
            "name": "where",
            "in": "query",
            "required": False,
            "content": {"application/json": {"schema": {"anyOf": [{"$ref": "#/components/schemas/Entry"}, NULL], "default": None}}},
        },
        {"name": "tags", "in": "query", "required": False, "schema": {"type": "array", "items": {"type": "string"}}},
    ]
    assert set(said["responses"]) == {"200", "default"}
    assert "requestBody" not in said


async def test_the_same_tool_takes_a_body_where_it_is_posted() -> None:
    said = (await document())["paths"]["/brief/{day}"]["post"]
    assert said["operationId"] == "brief_post"
    assert [each["name"] for each in said["parameters"]] == ["day"]
    schema = said["requestBody"]["content"]["application/json"]["schema"]
    assert said["requestBody"]["required"] is True
    assert (set(schema["properties"]), schema["required"], schema["additionalProperties"]) == (
        {"secret", "limit", "where", "tags"},
        ["secret"],
        False,
    )
    assert set(said["responses"]) == {"200", "default"}


async def test_head_is_not_listed_and_a_title_is_the_summary() -> None:
    paths = (await document())["paths"]
    assert set(paths["/brief/{day}"]) == {"get", "post", "delete"}
    assert paths["/brief/{day}"]["delete"]["summary"] == "Forget it"
    assert set(paths["/brief/{day}"]["delete"]["responses"]) == {"202", "default"}


async def test_results_are_components_and_two_schemas_of_one_name_get_different_names() -> None:
    schemas = (await document())["components"]["schemas"]
    assert set(schemas) == {"Brief", "News", "Entry", "NewsStandEntry", "Problem"}
    assert (set(schemas["Entry"]["properties"]), set(schemas["NewsStandEntry"]["properties"])) == ({"title"}, {"rank"})
    assert schemas["Brief"]["properties"]["day"]["description"] == "The day, YYYY-MM-DD."
    validate(await document())


async def test_a_third_schema_of_one_name_gets_its_tools_name_and_a_tools_own_problem_another_name() -> None:
    mcp: FastMCP[Any] = FastMCP("Zoo")
    for name in ("lions", "bears", "night_owls", "big-cats", "problems"):
        kind = create_model("Problem" if name == "problems" else "Animal", **{name.replace("-", ""): (int, 1)})  # type: ignore[call-overload]  # its members' names are data

        async def tool() -> None: ...

        tool.__annotations__["return"] = kind
        mcp.tool(tool, name=name, description="Some.")
    made = openapi((await Twins.open(mcp)).operations, title="T", version="1")
    assert list(made["components"]["schemas"]) == ["Problem", "Animal", "ZooAnimal", "ZooNightOwlsAnimal", "ZooBigCatsAnimal", "ZooProblem"]
    validate(made)


async def test_an_argument_that_may_be_anything_is_a_text_in_the_query_and_anything_in_a_body() -> None:
    mcp: FastMCP[Any] = FastMCP("Store")

    @mcp.tool(meta=route("GET|POST /store"))
    async def store(value: Any = None) -> None:
        """Store a value."""

    said = openapi((await Twins.open(mcp)).operations, title="T", version="1")["paths"]["/store"]
    assert said["get"]["parameters"] == [{"name": "value", "in": "query", "required": False, "schema": {"type": "string"}}]
    assert said["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"] == {"value": {"default": None}}


async def test_arguments_of_which_one_is_required_are_listed_next_to_the_properties() -> None:
    mcp: FastMCP[Any] = FastMCP("Post")

    @mcp.tool(meta=route("/letters", any_of=("street", "box")))
    async def send(text: str, street: Annotated[str, Field(min_length=3)] | None = None, box: int | None = None) -> None:
        """Send a letter."""

    made = openapi((await Twins.open(mcp)).operations, title="T", version="1")
    schema = made["paths"]["/letters"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == {"text", "street", "box"}
    says = OAS30Validator(schema).is_valid
    assert [says({"text": "a", **to}) for to in ({"street": "abc"}, {"box": 1}, {"street": "abc", "box": None})] == [True] * 3
    assert [says({"text": "a", **to}) for to in ({}, {"street": None}, {"street": "ab"}, {"box": None})] == [False] * 4
    validate(made)


async def test_a_rule_about_an_unknown_argument_is_an_error() -> None:
    mcp: FastMCP[Any] = FastMCP("Post")

    @mcp.tool(meta=route("/letters", any_of=("street", "campus")))
    async def send(street: str) -> None:
        """Send a letter."""

    with pytest.raises(ValueError, match="tool 'send': any_of= 'campus' is not one of its arguments; the arguments are: street"):
        await Twins.open(mcp)


async def test_a_schema_that_is_used_again_keeps_its_name() -> None:
    operations = (await Twins.open(server())).operations
    made = openapi({"a": operations[2:], "b": operations[:2]}, title="T", version="1")
    alone = openapi(operations, title="T", version="1")
    assert len(made["components"]["schemas"]) == len(alone["components"]["schemas"])


async def test_a_model_is_one_component_as_a_result_and_within_another() -> None:
    mcp: FastMCP[Any] = FastMCP("Reads")

    @mcp.tool
    async def one() -> News:
        """The news."""
        raise NotImplementedError

    @mcp.tool
    async def several() -> list[News]:
        """All news."""
        raise NotImplementedError

    @mcp.tool
    async def words() -> RootModel[list[str]]:
        """Words."""
        raise NotImplementedError

    made = openapi((await Twins.open(mcp)).operations, title="T", version="1")
    validate(made)
    assert set(made["components"]["schemas"]) == {"Problem", "News", "Entry", "SeveralResult", "WordsResult", "RootModel_list_str__"}


async def test_documents_that_share_conversions_are_what_each_is_alone() -> None:
    operations = list((await Twins.open(server())).operations)
    conversions: dict[int, Any] = {}
    taken = {"schemas": {"Entry": {"type": "string"}}}
    for listed, components in ((operations, {}), (operations, taken), (operations[::-1], {})):
        shared = openapi(listed, title="T", version="1", components=components, conversions=conversions)
        assert shared == openapi(listed, title="T", version="1", components=components)
        assert ("Entry" in shared["components"]["schemas"]) is not bool(components), "the name is taken, and nothing refers to what has it"
    assert conversions


POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "array", "items": POINT}, "b": {"$ref": "#/properties/a/items"}}},
        {"properties": {"a": {"$ref": "#/definitions/Point"}}, "definitions": {"Point": POINT}},
        {"properties": {"a": {"$ref": "#/$defs/Missing"}, "b": {"$ref": "https://elsewhere.test/b.json"}, "c": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#/properties/a/$defs/Q", "$defs": {"Q": POINT}}}},
        {"properties": {"a": True, "b": {"anyOf": [True, {"type": "null"}]}, "c": {"type": "array", "items": [POINT, {"type": "null"}]}}},
        {"properties": {"a": {"type": "integer", "minimum": 1, "exclusiveMinimum": True}}},
    ],
    ids=["into properties", "definitions", "nowhere", "definitions within", "true", "older keywords"],
)
@pytest.mark.parametrize("read_only", [True, False])
async def test_the_schemas_of_another_servers_tool_may_be_written_in_any_way(schema: dict[str, Any], read_only: bool) -> None:
    mcp: FastMCP[Any] = FastMCP("elsewhere")
    schema = {"type": "object", **schema}
    mcp.add_tool(Tool(name="tool", parameters=schema, output_schema=schema, annotations=ToolAnnotations(read_only_hint=read_only)))
    made = openapi((await Twins.open(mcp)).operations, title="T", version="1")
    validate(made)
    if "definitions" in schema:
        assert made["components"]["schemas"]["Point"] == {"type": "object", "properties": {"x": {"type": "integer"}}}


async def test_several_servers_are_distinguished_by_name() -> None:
    operations = (await Twins.open(server())).operations
    made = openapi({"one": operations[:1], "two": operations[1:]}, title="T", version="1")
    validate(made)
    assert made["paths"]["/brief/{day}"]["get"]["operationId"] == "one_brief"
    assert made["paths"]["/v1/news-stand/news"]["get"]["tags"] == ["two"]
    with pytest.raises(ValueError, match=r'"GET /brief/\{day\}" is used by two operations'):
        openapi({"one": operations, "two": operations}, title="T", version="1")


async def test_operations_of_one_name_are_refused() -> None:
    operations = (await Twins.open(server())).operations
    with pytest.raises(ValueError, match="both have the operationId 'brief'"):
        openapi([*operations, *operations], title="T", version="1")


async def test_the_caller_adds_responses_members_and_components() -> None:
    made = await document(
        servers=["https://example.com"],
        description="D",
        responses=lambda operation: [{"402": problem_response("Pay first.", schema="Terms")}] if operation.name == "news" else [],
        extras=lambda operation: {"security": [{"key": []}], "x-price": "0.01"},
        components={"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}, "schemas": {"Terms": {"type": "object"}}},
    )
    validate(made)
    news = made["paths"]["/v1/news-stand/news"]["get"]
    assert list(news["responses"]) == ["200", "402", "default"]
    assert (news["security"], news["x-price"]) == ([{"key": []}], "0.01")
    assert made["servers"] == [{"url": "https://example.com"}]
    assert {"Terms", "Problem"} <= set(made["components"]["schemas"])
    assert made["components"]["securitySchemes"]


async def test_an_attached_server_serves_its_document(fronts: Any) -> None:
    async with fronts(server()) as each:
        answer = await each.http.get("/openapi.json")
        assert answer.json()["info"] == {"title": "News stand", "version": "0.2.0", "description": "Read all about it."}
        assert answer.json()["openapi"] == "3.0.3"
        validate(answer.json())
        again = await each.http.get("/openapi.json", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304


async def test_a_default_that_no_document_can_hold_is_refused_by_name_and_a_time_without_its_zone_is_left_out() -> None:
    mcp: FastMCP[Any] = FastMCP("Prices")

    @mcp.tool
    def since(at: datetime = datetime(2026, 1, 1), zoned: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> str:
        return ""

    document = openapi(await operations_of(mcp), title="Prices", version="1")
    validate(document)
    schema = document["paths"]["/v1/prices/since"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert [each.get("default") for each in schema["properties"].values()] == [None, "2026-01-01T00:00:00Z"]

    for limit in (float("inf"), float("nan")):

        @mcp.tool
        def cheaper(max_price: float = limit) -> str:
            return ""

        with pytest.raises(ValueError, match="tool 'cheaper': the schema of its argument 'max_price' has NaN or an infinity"):
            await operations_of(mcp)
