"""x402's bazaar extension: how a paid call is made, in the terms themselves, for crawlers. Pure data."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from campus.payments.examples import example_of
from twins import Operation, Parameter
from twins.operation import IN_QUERY
from twins.parameter_decoding import resolve_reference

BAZAAR = "bazaar"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
LARGEST = 1_500
"""In bytes, of one schema: the terms travel in a header, and proxies often take no more than 4 or 8 KB of those."""
LARGEST_EXTENSION = 2_000
LARGEST_OVER_MCP = 1_000
"""In bytes, of all of it; what is left beside the input is the output's. Over MCP a model reads every word of it."""
DEEPEST = 6
KEPT = ("type", "enum", "const", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "required", "description")
KEPT_OF_OUTPUT = ("type", "enum", "const", "format", "required")
Schema = Mapping[str, Any]


def http_extension(operation: Operation, method: str) -> dict[str, Any]:
    """How the twin is called by one of its methods."""
    in_path = [each for each in operation.parameters if each.in_path]
    others = [each for each in operation.parameters if not each.in_path]
    said: dict[str, Any] = {"type": "http", "method": method}
    properties: dict[str, Any] = {"type": {"const": "http"}, "method": {"const": method}}
    required = ["type", "method"]
    if method in IN_QUERY:
        # crawlers skip a tool without it, even where it takes nothing
        properties["queryParams"] = _object(others, operation, name=lambda each: each.wire)
    else:
        said |= {"bodyType": "json", "body": {}}
        # what must be sent is not said here: the empty example above would not fit it, and a crawler checks that
        properties |= {"bodyType": {"const": "json"}, "body": _object(others, operation, name=lambda each: each.name) | {"required": []}}
        required += ["bodyType", "body"]
    if in_path:
        said["pathParams"] = {each.name: f":{each.name}" for each in in_path}
        properties["pathParams"] = {"type": "object", "properties": {each.name: {"type": "string"} for each in in_path}}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return _extension(said, schema, operation, largest=LARGEST_EXTENSION)


def mcp_extension(operation: Operation, description: str) -> dict[str, Any]:
    """How the tool is called over MCP."""
    tool = operation.tool
    said = {
        "type": "mcp",
        "toolName": tool.name,
        "description": description,
        "transport": "streamable-http",
        "inputSchema": _object(operation.parameters, operation, name=lambda each: each.name),
    }
    text = {"type": "string"}
    properties = {
        "type": {"const": "mcp"},
        "toolName": text,
        "description": text,
        "transport": {"const": "streamable-http"},
        "inputSchema": {"type": "object"},
    }
    schema = {"type": "object", "properties": properties, "required": ["type", "toolName", "inputSchema"], "additionalProperties": False}
    return _extension(said, schema, operation, largest=LARGEST_OVER_MCP)


def _extension(said: Mapping[str, Any], input_schema: Schema, operation: Operation, *, largest: int) -> dict[str, Any]:
    """Input and output; a call's URL is catalogued by its template, or each value in a path would be a resource."""
    room = largest - len(to_json([said, input_schema]))
    example, output_schema = _output(operation, room)
    info = {"input": dict(said), "output": {"type": "json", "example": example}}
    document = {"$schema": DIALECT, "type": "object", "properties": {"input": input_schema, "output": output_schema}, "required": ["input"]}
    template = {"routeTemplate": operation.path.replace("{", ":").replace("}", "")} if operation.route.placeholders else {}
    return {BAZAAR: {"info": info, "schema": document, **template}}


def _output(operation: Operation, room: int) -> tuple[Any, dict[str, Any]]:
    """An answer, and its schema: both as full as there is room for; an empty object where there is none."""
    root: Schema = operation.tool.output_schema or {"type": "object"}
    schemas = [_slim(root, root, keep=KEPT_OF_OUTPUT), _slim(root, root, keep=("type",)), _shallow(root), {"type": "object"}]
    examples = [example_of(root, root), example_of(root, root, brief=True)]
    for example in examples:
        for schema in schemas:
            if len(to_json([example, schema])) <= room:
                return example, _of_answers(schema)
    return {}, _of_answers({"type": "object"})


def _of_answers(schema: Schema) -> dict[str, Any]:
    return {"type": "object", "properties": {"type": {"type": "string"}, "example": schema}, "required": ["type"]}


def _shallow(schema: Schema) -> dict[str, Any]:
    """The members of an answer, and not what is in them."""
    members = schema.get("properties", {}).items()
    return {"type": "object", "properties": {name: {word: part[word] for word in ("type",) if word in part} for name, part in members}}


def _object(parameters: Iterable[Parameter], operation: Operation, *, name: Callable[[Parameter], str]) -> dict[str, Any]:
    """The schema of an object of these arguments; where it is large without its words, and then with types alone."""
    members = list(parameters)
    required = [name(each) for each in members if each.required]
    root = operation.tool.parameters
    for keep in (KEPT, [each for each in KEPT if each != "description"], ("type",)):
        properties = {name(each): _slim(each.schema, root, keep=keep) for each in members}
        schema = {"type": "object", "properties": properties, "required": required}
        if len(to_json(schema)) <= LARGEST:
            return schema
    return {"type": "object"}


def _slim(schema: Schema, root: Schema, *, keep: Iterable[str], depth: int = 0) -> dict[str, Any]:
    """What a caller must know of a schema, without references: these lead nowhere outside the tool's own."""
    if depth > DEEPEST:
        return {}
    kept = list(keep)
    if "$ref" in schema:
        return _slim(resolve_reference(schema["$ref"], root), root, keep=kept, depth=depth + 1)
    found = {word: schema[word] for word in kept if word in schema}
    for arms in ("anyOf", "oneOf", "allOf"):
        if arms in schema:
            found[arms] = [_slim(arm, root, keep=kept, depth=depth + 1) for arm in schema[arms]]
    if isinstance(schema.get("items"), Mapping):
        found["items"] = _slim(schema["items"], root, keep=kept, depth=depth + 1)
    if "properties" in schema:
        found["properties"] = {name: _slim(part, root, keep=kept, depth=depth + 1) for name, part in schema["properties"].items()}
    return found
