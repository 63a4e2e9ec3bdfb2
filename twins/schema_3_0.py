"""JSON Schema 2020-12, as pydantic writes it, turned into the older dialect of OpenAPI 3.0. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twins.spelling import NAMES

Schema = dict[str, Any]
# What OpenAPI 3.0 takes as it is; whatever else a schema says is left out, but for extensions (x-…).
WORDS_KEPT = """
    title description default format pattern required enum type example deprecated readOnly writeOnly multipleOf
    minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength
    minItems maxItems uniqueItems minProperties maxProperties
"""
KEPT = frozenset(WORDS_KEPT.split())
LISTS = ("anyOf", "oneOf", "allOf")


def to_3_0(schema: Mapping[str, Any] | bool, rename: Callable[[str], str] = lambda name: name) -> Schema:
    """The same schema in OpenAPI 3.0's words.

    References `#/$defs/Name` point into `#/components/schemas` afterwards, under the name that `rename` gives;
    the definitions themselves are the caller's to convert.
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
    return "#/components/schemas/" + rename(address.rsplit("/", 1)[-1])


def _convert_values(converted: Schema, schema: Mapping[str, Any]) -> None:
    if "const" in schema:
        converted["enum"] = [schema["const"]]
    values = converted.get("enum", ())
    if values and "type" not in converted:
        converted["type"] = sorted({NAMES[type(value)] for value in values})
    if examples := schema.get("examples"):
        converted.setdefault("example", examples[0])


def _convert_bounds(converted: Schema) -> None:
    """3.0 says that a bound is exclusive by a flag beside it."""
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
        converted["properties"] = {name: to_3_0(part, rename) for name, part in schema["properties"].items()}
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
    """3.0 knows no tuples: an array of fixed length whose items are any of its members."""
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


def _with_reference(beside: Schema, address: str) -> Schema:
    """3.0 ignores whatever stands beside a reference, so it is wrapped where something does."""
    return {"allOf": [{"$ref": address}], **beside} if beside else {"$ref": address}


def _without_null_arm(converted: Schema) -> Schema:
    """An alternative that is null becomes `nullable`; a lone alternative left is merged or wrapped."""
    for name in ("anyOf", "oneOf"):
        arms = converted.get(name, [])
        left = [arm for arm in arms if not _is_null(arm)]
        if len(left) == len(arms):
            continue
        rest = {key: value for key, value in converted.items() if key != name} | {"nullable": True}
        if len(left) != 1:
            return rest | {name: left}
        return {"allOf": left, **rest} if "$ref" in left[0] else left[0] | rest
    return converted


def _is_null(arm: Schema) -> bool:
    return arm.get("enum") == [None]


def _with_type(converted: Schema) -> Schema:
    """3.0 takes one type, and no null: several become alternatives, null becomes `nullable`."""
    said = converted.get("type")
    types = [said] if isinstance(said, str) else list(said or ())
    if "null" not in types and len(types) < 2:
        return converted if isinstance(said, str | None) else converted | {"type": types[0]}
    rest = {name: value for name, value in converted.items() if name != "type"}
    if "null" in types:
        rest["nullable"] = True
        types.remove("null")
    if not types:
        return rest | {"enum": [None]}
    return rest | ({"type": types[0]} if len(types) == 1 else {"anyOf": [{"type": each} for each in types]})
