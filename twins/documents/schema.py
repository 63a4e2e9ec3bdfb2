"""Schemas of an OpenAPI document: JSON Schema 2020-12, as pydantic writes it, converted to OpenAPI 3.0's dialect, and named."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

from twins.problems import problem_schema
from twins.tool.operation import Operation
from twins.tool.schemas import TYPE_NAMES

Schema = dict[str, Any]
# Keywords that OpenAPI 3.0 has too. All others are left out, except extensions (x-…).
SAME_KEYWORDS = """
    title description default format pattern required enum type example deprecated readOnly writeOnly multipleOf
    minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength
    minItems maxItems uniqueItems minProperties maxProperties
"""
KEPT = frozenset(SAME_KEYWORDS.split())
LISTS = ("anyOf", "oneOf", "allOf")
# 3.0.3 allows `nullable` only next to `type`; if the schema has an `enum`, null must be one of its values too.
NULL: Mapping[str, Any] = {"type": "object", "nullable": True, "enum": [None]}
PROBLEM = "Problem"
DEFINITION = re.compile(r"#/(?:\$defs|definitions)/([^/]+)")
COMPONENT = re.compile(r"#/components/([^/]+)/([^/]+)")
ZONED_TIME = re.compile(r".+T.+(Z|[+-]\d\d:\d\d)", re.IGNORECASE)
Rename = Callable[[str], str | None]


def to_3_0(schema: Mapping[str, Any] | bool, rename: Rename = lambda name: name) -> Schema:
    """The same schema in OpenAPI 3.0's dialect.

    References `#/$defs/Name` become references into `#/components/schemas`, with the name that `rename` returns. The
    caller converts the definitions themselves. Another reference, or one for which `rename` returns None, is left out: there the
    document accepts anything.
    """
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    converted = {name: value for name, value in schema.items() if name in KEPT or name.startswith("x-")}
    converted.pop("x-fastmcp-wrap-result", None)
    _convert_values(converted, schema)
    _convert_bounds(converted)
    _convert_parts(converted, schema, rename)
    _convert_arrays(converted, schema, rename)
    if "$ref" in schema and (address := reference(schema["$ref"], rename)):
        return _with_reference(converted, address)
    return _with_valid_default(_with_type(_without_null_arm(converted)))


def reference(address: str, rename: Rename) -> str | None:
    found = DEFINITION.fullmatch(address)
    name = rename(found[1]) if found else None
    return f"#/components/schemas/{name}" if name else None


def _convert_values(converted: Schema, schema: Mapping[str, Any]) -> None:
    if "const" in schema:
        converted["enum"] = [schema["const"]]
    values = converted.get("enum", ())
    if values and "type" not in converted:
        converted["type"] = sorted({TYPE_NAMES[type(value)] for value in values})
    if examples := schema.get("examples"):
        converted.setdefault("example", examples[0])


def _with_valid_default(converted: Schema) -> Schema:
    default = converted.get("default")
    if converted.get("format") != "date-time" or default is None or ZONED_TIME.fullmatch(str(default)):
        return converted
    return {name: value for name, value in converted.items() if name != "default"}


def _convert_bounds(converted: Schema) -> None:
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if not isinstance(converted.get(exclusive, True), bool):
            converted[bound] = converted[exclusive]
            converted[exclusive] = True


def _convert_parts(converted: Schema, schema: Mapping[str, Any], rename: Rename) -> None:
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
        given = discriminator.get("mapping", {}).items()
        mapping = {value: found for value, address in given if (found := reference(address, rename))}
        converted["discriminator"] = {"propertyName": discriminator["propertyName"]} | ({"mapping": mapping} if mapping else {})


def _convert_arrays(converted: Schema, schema: Mapping[str, Any], rename: Rename) -> None:
    """3.0 has no tuples: a tuple becomes an array, and each item may match any of the tuple's item schemas."""
    items = schema.get("items")
    members = schema.get("prefixItems")
    if isinstance(items, list):  # a tuple in older JSON Schema
        members, items = items, schema.get("additionalItems")
    if members:
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
    if isinstance(schema, dict) and schema.get("title") == name.replace("_", " ").title():
        return {key: value for key, value in schema.items() if key != "title"}
    return schema


def without_null(schema: Mapping[str, Any] | bool) -> Schema:
    """A schema with null removed: for parameters, where null cannot be sent."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    found = dict(schema)
    if found.get("default", ...) is None:
        del found["default"]
    if isinstance(found.get("type"), list):
        found["type"] = [each for each in found["type"] if each != "null"]
    if "enum" in found:
        found["enum"] = [value for value in found["enum"] if value is not None]
    for name in ("anyOf", "oneOf"):
        arms = [without_null(arm) for arm in found.pop(name, ()) if arm is True or arm is False or arm.get("type") != "null"]
        found = {**arms[0], **found} if len(arms) == 1 else found | ({name: arms} if arms else {})
    return found


class Definitions:
    """What a schema defines under `$defs`, each converted once and without its title; references keep the definitions' own names."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.own: Mapping[str, Any] = root.get("$defs") or root.get("definitions", {})
        self._converted: dict[str, Schema] = {}
        self._named: dict[str, frozenset[str]] = {}
        self._sources: dict[str, dict[str, Schema]] = {}

    @cached_property
    def whole(self) -> Schema:
        return _untitled(to_3_0(self.root, self._kept))

    def converted(self, name: str) -> Schema:
        if name not in self._converted:
            self._converted[name] = _untitled(to_3_0(self.own[name], self._kept))
        return self._converted[name]

    def _kept(self, name: str) -> str | None:
        return name if name in self.own else None

    def reached(self, schema: Any) -> list[str]:
        if not self.own:
            return []
        if schema is self.root:
            return self._reached_by_root
        return self._reached(schema)

    @cached_property
    def _reached_by_root(self) -> list[str]:
        return self._reached(self.root)

    def _reached(self, schema: Any) -> list[str]:
        found: set[str] = set()
        waiting = {*_references(schema)}
        while waiting:
            name = waiting.pop()
            if name in self.own and name not in found:
                found.add(name)
                waiting |= self._named_by(name)
        return sorted(found)

    def source(self, name: str) -> dict[str, Schema]:
        """A definition with everything it refers to: two definitions are equal only if all that they refer to is equal too."""
        if name not in self._sources:
            self._sources[name] = {each: self.converted(each) for each in {name, *self.reached(self.own[name])}}
        return self._sources[name]

    def _named_by(self, name: str) -> frozenset[str]:
        if name not in self._named:
            self._named[name] = frozenset(_references(self.own[name]))
        return self._named[name]


Conversions = dict[int, Definitions]
"""What was converted already, by the identity of the schema, which its entry keeps. Documents of the same operations can share it."""


class Components:
    """Collects schemas and shared responses while a document is made: the content of components/schemas and components/responses."""

    def __init__(self, given: Mapping[str, Any], conversions: Conversions) -> None:
        self.schemas: dict[str, Any] = {PROBLEM: problem_schema(), **given}
        self.responses: dict[str, Any] = {}
        self._sources: dict[str, Any] = {}
        self._definitions = conversions

    def inline(self, schema: Mapping[str, Any], operation: Operation) -> Schema:
        names = self._names_for(schema, self._definitions_of(operation.tool.parameters), operation)
        return to_3_0(schema, names.get)

    def named(self, name: str, schema: Mapping[str, Any], operation: Operation) -> Schema:
        definitions = self._definitions_of(schema)
        names = self._names_for(schema, definitions, operation)
        whole = definitions.whole
        # a recursive schema is one of its own definitions
        own = next((names[each] for each in names if definitions.converted(each) == whole), None)
        if own is None:
            source = {each: definitions.converted(each) for each in names} | {"" if name in names else name: whole}
            own = self._name(name, source, operation)
            self.schemas[own] = _renamed(schema, whole, names)
        return {"$ref": f"#/components/schemas/{own}"}

    def response(self, title: str, response: Schema, operation: Operation) -> Schema:
        known = (name for name, each in self.responses.items() if each == response)
        name = next(known, None) or next(each for each in _candidates(in_capitals(title), operation) if each not in self.responses)
        self.responses[name] = response
        return {"$ref": f"#/components/responses/{name}"}

    def _definitions_of(self, root: Mapping[str, Any]) -> Definitions:
        if id(root) not in self._definitions:
            self._definitions[id(root)] = Definitions(root)
        return self._definitions[id(root)]

    def _names_for(self, schema: Mapping[str, Any], definitions: Definitions, operation: Operation) -> dict[str, str]:
        """The component names of all definitions that a schema refers to, directly or not; adds these components."""
        names = {name: self._name(name, definitions.source(name), operation) for name in definitions.reached(schema)}
        for name, own in names.items():
            self.schemas[own] = _renamed(definitions.own[name], definitions.converted(name), names)
        return names

    def _name(self, wanted: str, source: Any, operation: Operation) -> str:
        for name in _candidates(wanted, operation):
            if self._sources.get(name) == source:
                return name
            if name not in self.schemas:
                self._sources[name] = source
                self.schemas[name] = {}
                return name
        raise AssertionError("the candidates never end")


def _candidates(wanted: str, operation: Operation) -> Iterator[str]:
    base = re.sub(r"[^A-Za-z0-9._-]", "_", wanted)
    server = in_capitals(operation.server)
    tool = in_capitals(operation.name)
    yield base
    yield f"{server}{base}"
    yield f"{server}{tool}{base}"
    yield from (f"{server}{tool}{base}{number}" for number in count(2))


def in_capitals(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", name))


def used_of(paths: Any, components: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The components that the paths refer to, directly or not; security schemes are named, and all of them kept."""
    found: set[tuple[str, str]] = set()
    waiting = {*_components_in(paths)}
    while waiting:
        found |= waiting
        waiting = {*_components_in([components.get(kind, {}).get(name) for kind, name in waiting])} - found
    kept = {
        kind: {name: each for name, each in named.items() if kind == "securitySchemes" or (kind, name) in found}
        for kind, named in components.items()
    }
    return {kind: named for kind, named in kept.items() if named or kind == "schemas"}


def _components_in(node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        address = node.get("$ref")
        if isinstance(address, str) and (found := COMPONENT.fullmatch(address)):
            yield found[1], found[2]
        node = [*node.values()]
    if isinstance(node, list):
        for value in node:
            yield from _components_in(value)


def _untitled(schema: Schema) -> Schema:
    """The schema without its title: code generators would use it as a second name, and two schemas may have the same title."""
    return {key: value for key, value in schema.items() if key != "title"}


def _renamed(schema: Mapping[str, Any], converted: Schema, names: Mapping[str, str]) -> Schema:
    if all(name == own for name, own in names.items()):
        return converted
    return _untitled(to_3_0(schema, names.get))


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        address = node.get("$ref")
        if isinstance(address, str) and (found := DEFINITION.fullmatch(address)):
            yield found[1]
        for name, value in node.items():
            if name != "$defs":
                yield from _references(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _references(value)
