"""x402's bazaar extension: tells crawlers, within the terms, how to make a paid call; with an example of the answer. Pure."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from pydantic_core import to_json

from twins import QUERY_METHODS, Operation, Parameter, resolve_reference

BAZAAR = "bazaar"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
LARGEST = 1_500
"""In bytes, of one schema."""
LARGEST_EXTENSION = 1_750
LARGEST_OVER_MCP = 1_000
"""In bytes, of the whole extension; the output gets the bytes that the input leaves. Less over MCP, where a model reads every word."""
SHORTER = (1_200, 1_000, 850, 700, 550, 400)
"""The sizes from which a header takes the largest that fits: many proxies accept no more than 4 KB of headers."""
AROUND_ARGUMENTS = 300
"""About the bytes of an extension besides its schema of the arguments."""
ANY_OBJECT = {"type": "object"}
DEEPEST_SCHEMA = 6
SCHEMA_KEYWORDS = ("type", "enum", "const", "format", "pattern", "minimum", "maximum", "minLength", "maxLength", "required", "description")
OUTPUT_KEYWORDS = ("type", "enum", "const", "format", "required")
DEEPEST_EXAMPLE = 8
"""In deeper levels of an example, lists are empty and nullable values are null."""
TEXTS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1M",
    "uri": "https://example.com/",
    "email": "someone@example.com",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}
Schema = Mapping[str, Any]


def http_extension(operation: Operation, method: str, *, largest: int = LARGEST_EXTENSION) -> dict[str, Any]:
    """How to call the HTTP route with one of its methods; `largest` is the size to aim at, in bytes."""
    room = min(LARGEST, largest - AROUND_ARGUMENTS)
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
    """How to call the tool over MCP."""
    tool = operation.tool
    call = {
        "type": "mcp",
        "toolName": tool.name,
        "description": description,
        "transport": "streamable-http",
        "inputSchema": _object(operation.parameters, operation, largest=LARGEST, name=lambda each: each.name),
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
    examples = [example_of(root, root), example_of(root, root, brief=True)]
    for example, schema in [*product(examples, schemas), ({}, schemas[-1]), *product(examples, [ANY_OBJECT])]:
        if len(to_json([example, schema])) <= budget:
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
    return names if len(to_json(names)) <= largest else {"type": "object"}


def _slim(schema: Schema, root: Schema, *, keep: Iterable[str], depth: int = 0) -> dict[str, Any]:
    """The schema reduced to some keywords, and descriptions to their first sentences. References are replaced by what they point to,
    which only the tool's own schema has.
    """
    if depth > DEEPEST_SCHEMA:
        return {}
    keywords = list(keep)
    if "$ref" in schema:
        return _slim(resolve_reference(schema["$ref"], root), root, keep=keywords, depth=depth + 1)
    found = {keyword: schema[keyword] for keyword in keywords if keyword in schema}
    if isinstance(text := found.get("description"), str):
        found["description"] = text.partition(". ")[0]
    for arms in ("anyOf", "oneOf", "allOf"):
        if arms in schema:
            found[arms] = [_slim(arm, root, keep=keywords, depth=depth + 1) for arm in schema[arms]]
    if isinstance(schema.get("items"), Mapping):
        found["items"] = _slim(schema["items"], root, keep=keywords, depth=depth + 1)
    if "properties" in schema:
        found["properties"] = {name: _slim(part, root, keep=keywords, depth=depth + 1) for name, part in schema["properties"].items()}
    return found


def example_of(schema: Schema, root: Schema, *, brief: bool = False, depth: int = 0) -> Any:
    """An example of what a schema describes, always the same for the same schema: its own (examples, const, enum) or the simplest value.

    An object gets its required members. `root` is the document that its references point into. In a brief example lists are empty,
    nullable values are null, and a schema's own examples of whole objects or lists are not used.
    """
    brief = brief or depth > DEEPEST_EXAMPLE
    if "$ref" in schema:
        return example_of({**resolve_reference(schema["$ref"], root), **_without_reference(schema)}, root, brief=brief, depth=depth + 1)
    if brief and _is_nullable(schema):
        return None
    for keyword in ("examples", "enum"):
        if schema.get(keyword) and not (brief and isinstance(schema[keyword][0], dict | list)):
            return schema[keyword][0]
    if "const" in schema:
        return schema["const"]
    for arms in ("anyOf", "oneOf"):
        if arms in schema:
            arm = next((each for each in schema[arms] if each.get("type") != "null"), {"type": "null"})
            return example_of(arm, root, brief=brief, depth=depth + 1)
    if parts := [example_of(each, root, brief=brief, depth=depth + 1) for each in schema.get("allOf", ())]:
        return {name: value for part in parts if isinstance(part, dict) for name, value in part.items()} or parts[0]
    return _of_type(schema, root, brief=brief, depth=depth)


def _of_type(schema: Schema, root: Schema, *, brief: bool, depth: int) -> Any:
    match _type_of(schema):
        case "object":
            required = {name: schema.get("properties", {}).get(name, {}) for name in schema.get("required", ())}
            return {name: example_of(part, root, brief=brief, depth=depth + 1) for name, part in required.items()}
        case "array":
            return _list(schema, root, brief=brief, depth=depth)
        case "string":
            return TEXTS.get(schema.get("format", ""), "text")
        case "integer" | "number":
            return _number(schema)
        case "boolean":
            return schema.get("default") is True
    return None


def _list(schema: Schema, root: Schema, *, brief: bool, depth: int) -> list[Any]:
    first = [example_of(each, root, brief=brief, depth=depth + 1) for each in schema.get("prefixItems", ())]
    wanted = max(schema.get("minItems", 0), 0 if brief else 1) - len(first)
    items = schema.get("items")
    if wanted <= 0 or not isinstance(items, Mapping):
        return first
    return first + [example_of(items, root, brief=brief, depth=depth + 1)] * wanted


def _number(schema: Schema) -> int | float:
    least = schema.get("minimum")
    most = schema.get("maximum")
    if "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"] + 1
    number: int | float = 1 if least is None else max(least, 1)
    return number if most is None else min(number, most)


def _type_of(schema: Schema) -> str | None:
    declared = schema.get("type")
    if isinstance(declared, list):
        return next((each for each in declared if each != "null"), None)
    return declared or ("object" if schema.get("properties") else None)


def _is_nullable(schema: Schema) -> bool:
    declared = schema.get("type")
    arms = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return (isinstance(declared, list) and "null" in declared) or any(arm.get("type") == "null" for arm in arms)


def _without_reference(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "$ref"}
