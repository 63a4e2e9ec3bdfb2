"""x402's bazaar extension: tells crawlers, within the terms, how to make a paid call; with an example of the answer. Pure."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from pydantic_core import to_json

from twins import QUERY_METHODS, Operation, Parameter, resolve_reference, with_parts

BAZAAR = "bazaar"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
LARGEST_EXTENSION = 2_750
LARGEST_OVER_MCP = 1_000
"""In bytes, of the whole extension; the output gets the bytes that the input leaves. Less over MCP, where a model reads every word."""
SHORTER = (2_250, 1_750, 1_450, 1_200, 1_000, 850, 700, 550, 400)
"""The sizes from which a header takes the largest that fits: many proxies accept no more than 4 KB of headers."""
OF_ARGUMENTS = 0.4
"""The share of an extension that the schema of the arguments may take, so that an example of the answer fits beside it."""
ANY_OBJECT = {"type": "object"}
DEEPEST_SCHEMA = 6
SCHEMA_KEYWORDS = ("type", "enum", "const", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "required", "description")
OUTPUT_KEYWORDS = ("type", "enum", "const", "format", "required")
PARTS = ("anyOf", "oneOf", "allOf", "items", "properties")
Schema = Mapping[str, Any]


def http_extension(operation: Operation, method: str, *, largest: int = LARGEST_EXTENSION) -> dict[str, Any]:
    """How to call the HTTP route with one of its methods; `largest` is the size to aim at, in bytes."""
    room = int(largest * OF_ARGUMENTS)
    in_path = [each for each in operation.parameters if each.in_path]
    others = [each for each in operation.parameters if not each.in_path]
    call: dict[str, Any] = {"type": "http", "method": method}
    properties: dict[str, Any] = {"type": {"const": "http"}, "method": {"const": method}}
    required = ["type", "method"]
    if method in QUERY_METHODS:
        # crawlers skip a tool without it, even one without arguments
        properties["queryParams"] = _object(others, operation, largest=room, name=lambda each: each.wire)
    else:
        call |= {"bodyType": "json", "body": {}}
        # no argument is marked as required: the empty example above would not match, and crawlers check it
        body = _object(others, operation, largest=room, name=lambda each: each.name) | {"required": []}
        properties |= {"bodyType": {"const": "json"}, "body": body}
        required += ["bodyType", "body"]
    if in_path:
        call["pathParams"] = {each.name: f":{each.name}" for each in in_path}
        properties["pathParams"] = {"type": "object", "properties": {each.name: {"type": "string"} for each in in_path}}
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return _extension(call, schema, operation, largest=largest)


def mcp_extension(operation: Operation, description: str) -> dict[str, Any]:
    tool = operation.tool
    call = {
        "type": "mcp",
        "toolName": tool.name,
        "description": description,
        "transport": "streamable-http",
        "inputSchema": _object(operation.parameters, operation, largest=int(LARGEST_EXTENSION * OF_ARGUMENTS), name=lambda each: each.name),
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
    return _extension(call, schema, operation, largest=LARGEST_OVER_MCP)


def _extension(call: Mapping[str, Any], input_schema: Schema, operation: Operation, *, largest: int) -> dict[str, Any]:
    """Input and output. The route template keeps crawlers from listing each value in a path as a resource."""
    budget = largest - len(to_json([call, input_schema]))
    example, output_schema = _output(operation, budget)
    info = {"input": dict(call), "output": {"type": "json", "example": example}}
    document = {"$schema": DIALECT, "type": "object", "properties": {"input": input_schema, "output": output_schema}, "required": ["input"]}
    template = {"routeTemplate": operation.path.replace("{", ":").replace("}", "")} if operation.route.placeholders else {}
    return {BAZAAR: {"info": info, "schema": document, **template}}


def legacy_schema(extensions: Mapping[str, Any]) -> dict[str, Any]:
    """The same in the form of x402 v1, its `outputSchema`: each argument with its type and whether it is required; an example answer."""
    extension = extensions[BAZAAR]
    inputs = extension["schema"]["properties"]["input"]["properties"]
    call = extension["info"]["input"]
    told: dict[str, Any] = {"type": "http", "method": call["method"], "discoverable": True}
    if "body" in inputs:
        told |= {"bodyType": call["bodyType"], "bodyFields": _fields(inputs["body"])}
    else:
        told["queryParams"] = _fields(inputs["queryParams"])
    if "pathParams" in inputs:
        told["pathParams"] = _fields(inputs["pathParams"])
    return {"input": told, "output": extension["info"]["output"]["example"]}


def _fields(schema: Schema) -> dict[str, Any]:
    required = schema.get("required", ())
    return {name: {**part, "required": name in required} for name, part in schema.get("properties", {}).items()}


def _output(operation: Operation, budget: int) -> tuple[Any, dict[str, Any]]:
    """An example answer and its schema, each as complete as fits into `budget` bytes; an empty object if nothing fits.

    A shorter example, or none, is preferred to a schema that names no members.
    """
    root: Schema = operation.answer_schema or {"type": "object"}
    schemas = [_slim(root, root, keep=OUTPUT_KEYWORDS), _slim(root, root, keep=("type",)), _shallow(root)]
    examples = [operation.examples.answer(word="text", brief=brief) if operation.answer_schema else {} for brief in (False, True)]
    for example, schema in [*product(examples, schemas), ({}, schemas[-1]), *product(examples, [ANY_OBJECT])]:
        if example is not None and len(to_json([example, schema])) <= budget:
            return example, _of_answers(schema)
    return {}, _of_answers(ANY_OBJECT)


def _of_answers(schema: Schema) -> dict[str, Any]:
    return {"type": "object", "properties": {"type": {"type": "string"}, "example": schema}, "required": ["type"]}


def _shallow(schema: Schema) -> dict[str, Any]:
    """The members of an answer and their types, without what they contain."""
    members = schema.get("properties", {}).items()
    return {"type": "object", "properties": {name: {"type": part["type"]} if "type" in part else {} for name, part in members}}


def _object(parameters: Iterable[Parameter], operation: Operation, *, largest: int, name: Callable[[Parameter], str]) -> dict[str, Any]:
    """The schema of an object of these arguments; if it is too large, without descriptions, then with types only, then with names only."""
    members = list(parameters)
    required = [name(each) for each in members if each.required]
    root = operation.tool.parameters
    for keep in (SCHEMA_KEYWORDS, [each for each in SCHEMA_KEYWORDS if each != "description"], ("type",)):
        properties = {name(each): _slim(each.schema, root, keep=keep) for each in members}
        schema = {"type": "object", "properties": properties, "required": required}
        if len(to_json(schema)) <= largest:
            return schema
    names: dict[str, Any] = {"type": "object", "properties": {name(each): {} for each in members}}
    return names if len(to_json(names)) <= 2 * largest else {"type": "object"}


def _slim(schema: Schema, root: Schema, *, keep: Iterable[str], depth: int = 0) -> dict[str, Any]:
    """The schema reduced to some keywords, and descriptions to their first sentences. References are replaced by what they point to,
    which only the tool's own schema has.
    """
    if depth > DEEPEST_SCHEMA:
        return {}
    keywords = list(keep)
    if "$ref" in schema:
        return _slim(resolve_reference(schema["$ref"], root), root, keep=keywords, depth=depth + 1)
    found = {keyword: schema[keyword] for keyword in (*keywords, *PARTS) if keyword in schema}
    if isinstance(text := found.get("description"), str):
        found["description"] = text.partition(". ")[0]
    return with_parts(found, lambda part, *_: _slim(part, root, keep=keywords, depth=depth + 1) if isinstance(part, Mapping) else part)
