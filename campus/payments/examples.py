"""An example of what a JSON schema describes, always the same for the same schema. Pure."""

from collections.abc import Mapping
from typing import Any

from twins.parameter_decoding import resolve_reference

DEEPEST = 8
"""Beyond it lists are empty, and what may be null is null."""
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


def example_of(schema: Schema, root: Schema, *, brief: bool = False, depth: int = 0) -> Any:
    """What the schema says itself (examples, const, enum), else the simplest value; `root` is where its references point.

    Of an object its required members. In a brief example lists are empty, what may be null is null, and what a schema
    shows as a whole object or list is left alone.
    """
    brief = brief or depth > DEEPEST
    if "$ref" in schema:
        return example_of({**resolve_reference(schema["$ref"], root), **_beside_reference(schema)}, root, brief=brief, depth=depth + 1)
    if brief and _may_be_null(schema):
        return None
    for said in ("examples", "enum"):
        if schema.get(said) and not (brief and isinstance(schema[said][0], dict | list)):
            return schema[said][0]
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
    least, most = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        least = schema["exclusiveMinimum"] + 1
    number: int | float = 1 if least is None else max(least, 1)
    return number if most is None else min(number, most)


def _type_of(schema: Schema) -> str | None:
    said = schema.get("type")
    if isinstance(said, list):
        return next((each for each in said if each != "null"), None)
    return said or ("object" if schema.get("properties") else None)


def _may_be_null(schema: Schema) -> bool:
    said = schema.get("type")
    arms = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return (isinstance(said, list) and "null" in said) or any(arm.get("type") == "null" for arm in arms)


def _beside_reference(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "$ref"}
