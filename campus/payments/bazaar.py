"""x402's bazaar extension: how a paid call is made, in the terms themselves, for crawlers. Pure data."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from twins import Operation, Parameter
from twins.operation import IN_QUERY
from twins.spelling import resolve

BAZAAR = "bazaar"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
LARGEST = 1_500
"""In bytes, of one schema: the terms travel in a header, and proxies often take no more than 4 or 8 KB of those."""
DEEPEST = 6
KEPT = ("type", "enum", "const", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "required", "description")
Schema = Mapping[str, Any]


def http_extension(operation: Operation, method: str) -> dict[str, Any]:
    """How the twin is called by one of its methods."""
    in_path = [each for each in operation.parameters if each.in_path]
    others = [each for each in operation.parameters if not each.in_path]
    said: dict[str, Any] = {"type": "http", "method": method}
    properties: dict[str, Any] = {"type": {"const": "http"}, "method": {"const": method}}
    required = ["type", "method"]
    if method in IN_QUERY:
        if others:
            properties["queryParams"] = _object(others, operation, name=lambda each: each.wire)
    else:
        said |= {"bodyType": "json", "body": {}}
        # what must be sent is not said here: the empty example above would not fit it, and a crawler checks that
        properties |= {"bodyType": {"const": "json"}, "body": _object(others, operation, name=lambda each: each.name) | {"required": []}}
        required += ["bodyType", "body"]
    found: dict[str, Any] = {}
    if in_path:
        said["pathParams"] = {each.name: f":{each.name}" for each in in_path}
        properties["pathParams"] = {"type": "object", "properties": {each.name: {"type": "string"} for each in in_path}}
        found["routeTemplate"] = operation.path.replace("{", ":").replace("}", "")
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {BAZAAR: {"info": {"input": said}, "schema": _document(schema), **found}}


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
    return {BAZAAR: {"info": {"input": said}, "schema": _document(schema)}}


def _document(input_schema: Schema) -> dict[str, Any]:
    return {"$schema": DIALECT, "type": "object", "properties": {"input": input_schema}, "required": ["input"]}


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
        return _slim(resolve(schema["$ref"], root), root, keep=kept, depth=depth + 1)
    found = {word: schema[word] for word in kept if word in schema}
    for arms in ("anyOf", "oneOf", "allOf"):
        if arms in schema:
            found[arms] = [_slim(arm, root, keep=kept, depth=depth + 1) for arm in schema[arms]]
    if isinstance(schema.get("items"), Mapping):
        found["items"] = _slim(schema["items"], root, keep=kept, depth=depth + 1)
    if "properties" in schema:
        found["properties"] = {name: _slim(part, root, keep=kept, depth=depth + 1) for name, part in schema["properties"].items()}
    return found
