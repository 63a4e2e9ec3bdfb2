"""Converts JSON Schema 2020-12, as pydantic writes it, to the older dialect of OpenAPI 3.0. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twins.parameter_decoding import TYPE_NAMES

Schema = dict[str, Any]
# Keywords that OpenAPI 3.0 has too. All others are left out, except extensions (x-…).
SAME_KEYWORDS = """
    title description default format pattern required enum type example deprecated readOnly writeOnly multipleOf
    minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength
    minItems maxItems uniqueItems minProperties maxProperties
"""
KEPT = frozenset(SAME_KEYWORDS.split())
LISTS = ("anyOf", "oneOf", "allOf")
# 3.0.3 accepts `nullable` only together with a type, and null only if an enum lists it too.
NULL: Mapping[str, Any] = {"type": "object", "nullable": True, "enum": [None]}


def to_3_0(schema: Mapping[str, Any] | bool, rename: Callable[[str], str] = lambda name: name) -> Schema:
    """The same schema in OpenAPI 3.0's dialect.

    References `#/$defs/Name` become references into `#/components/schemas`, with the name that `rename` returns. The
    caller converts the definitions themselves.
    """
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    converted = {name: value for name, value in schema.items() if name in KEPT or name.startswith("x-")}
    converted.pop("x-fastmcp-wrap-result", None)
    _convert_values(converted, schema)
    _convert_bounds(converted)
    _convert_parts(converted, schema, rename)
    _convert_arrays(converted, schema, rename)
    if "$ref" in schema:
        return _with_reference(converted, reference(schema["$ref"], rename))
    return _with_type(_without_null_arm(converted))


def reference(address: str, rename: Callable[[str], str]) -> str:
    """The reference to a component instead of the one to a definition."""
    return "#/components/schemas/" + rename(address.rsplit("/", 1)[-1])


def _convert_values(converted: Schema, schema: Mapping[str, Any]) -> None:
    if "const" in schema:
        converted["enum"] = [schema["const"]]
    values = converted.get("enum", ())
    if values and "type" not in converted:
        converted["type"] = sorted({TYPE_NAMES[type(value)] for value in values})
    if examples := schema.get("examples"):
        converted.setdefault("example", examples[0])


def _convert_bounds(converted: Schema) -> None:
    """In 3.0 a flag next to a bound makes it exclusive."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in converted:
            converted[bound] = converted[exclusive]
            converted[exclusive] = True


def _convert_parts(converted: Schema, schema: Mapping[str, Any], rename: Callable[[str], str]) -> None:
    for name in LISTS:
        if name in schema:
            converted[name] = [to_3_0(part, rename) for part in schema[name]]
    if "not" in schema:
        converted["not"] = to_3_0(schema["not"], rename)
    if "properties" in schema:
        converted["properties"] = {name: to_3_0(without_own_title(name, part), rename) for name, part in schema["properties"].items()}
    more = schema.get("additionalProperties")
    if isinstance(more, bool):
        converted["additionalProperties"] = more
    elif isinstance(more, Mapping):
        converted["additionalProperties"] = to_3_0(more, rename)
    if patterns := schema.get("patternProperties"):
        converted["additionalProperties"] = _any_of([to_3_0(part, rename) for part in patterns.values()])
    if discriminator := schema.get("discriminator"):
        mapping = {value: reference(address, rename) for value, address in discriminator.get("mapping", {}).items()}
        converted["discriminator"] = {"propertyName": discriminator["propertyName"]} | ({"mapping": mapping} if mapping else {})


def _convert_arrays(converted: Schema, schema: Mapping[str, Any], rename: Callable[[str], str]) -> None:
    """3.0 has no tuples: they become an array of fixed length whose items are any of their members."""
    items = schema.get("items")
    if members := schema.get("prefixItems"):
        among = [*members, *([items] if isinstance(items, Mapping) else [])]
        converted["items"] = _any_of([to_3_0(member, rename) for member in among])
    elif items is not None:
        converted["items"] = to_3_0(items, rename)
    elif schema.get("type") == "array":
        converted["items"] = {}


def _any_of(schemas: Sequence[Schema]) -> Schema:
    different = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    return different[0] if len(different) == 1 else {"anyOf": different}


def _with_reference(siblings: Schema, address: str) -> Schema:
    """3.0 ignores the siblings of a reference, so a reference with siblings is wrapped."""
    return {"allOf": [{"$ref": address}], **siblings} if siblings else {"$ref": address}


def _without_null_arm(converted: Schema) -> Schema:
    """The alternative null becomes `nullable` on another one; a single remaining alternative is merged or wrapped."""
    for name in ("anyOf", "oneOf"):
        arms = converted.get(name, [])
        left = [arm for arm in arms if arm != NULL]
        if len(left) == len(arms):
            continue
        rest = {key: value for key, value in converted.items() if key != name}
        return _or_null(left[0] if len(left) == 1 else {name: left}) | rest if left else dict(NULL) | rest
    return converted


def _with_type(converted: Schema) -> Schema:
    """3.0 accepts one type, and not null: several types become alternatives, null becomes `nullable`."""
    declared = converted.get("type")
    types = [declared] if isinstance(declared, str) else list(declared or ())
    rest = {name: value for name, value in converted.items() if name != "type"}
    left = [each for each in types if each != "null"]
    if not left:
        return rest | dict(NULL) if types else rest
    found = rest | ({"type": left[0]} if len(left) == 1 else {"anyOf": [{"type": each} for each in left]})
    return _or_null(found) if len(left) < len(types) and None in converted.get("enum", [None]) else found


def _or_null(schema: Schema) -> Schema:
    """The schema, with null as a valid value; a schema without a type accepts null already."""
    if "type" in schema:
        values = schema.get("enum", [None])
        return schema | {"nullable": True} | ({} if None in values else {"enum": [*values, None]})
    for name in ("anyOf", "oneOf"):
        if name in schema and "discriminator" not in schema:
            return schema | {name: _arms_or_null(schema[name])}
    return {"anyOf": [schema, dict(NULL)]} if {"$ref", *LISTS} & schema.keys() else schema


def _arms_or_null(arms: Sequence[Schema]) -> list[Schema]:
    typed = next((index for index, arm in enumerate(arms) if "type" in arm), None)
    if typed is None:
        return [*arms, dict(NULL)]
    return [_or_null(arm) if index == typed else arm for index, arm in enumerate(arms)]


def without_own_title(name: str, schema: Any) -> Any:
    """A member's schema without the title that pydantic makes from the member's name."""
    if isinstance(schema, Mapping) and schema.get("title") == name.replace("_", " ").title():
        return {key: value for key, value in schema.items() if key != "title"}
    return schema


def without_null(schema: Mapping[str, Any]) -> Schema:
    """A schema that pydantic wrote, for a place where null cannot be sent."""
    found = dict(schema)
    if found.get("default", ...) is None:
        del found["default"]
    if isinstance(found.get("type"), list):
        found["type"] = [each for each in found["type"] if each != "null"]
    if "enum" in found:
        found["enum"] = [value for value in found["enum"] if value is not None]
    for name in ("anyOf", "oneOf"):
        arms = [without_null(arm) for arm in found.pop(name, ()) if arm.get("type") != "null"]
        found = {**arms[0], **found} if len(arms) == 1 else found | ({name: arms} if arms else {})
    return found
