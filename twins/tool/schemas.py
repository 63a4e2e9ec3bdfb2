"""JSON schemas as tools publish them: their references and alternatives, a walk over their parts, and the check of a value.

A schema of another server is checked in bounded time, whatever it says. Patterns are matched by an engine without backtracking, and no
reference is ever fetched. The work that a schema makes is estimated before: alternatives that refer to alternatives, or hundreds of
patterns, take seconds in any validator, in which nobody else is answered.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from math import inf
from typing import Any

from jsonschema_rs import FancyRegexOptions, RegexOptions, Validator, ValidatorMap, validator_for, validator_map_for
from pydantic_core import to_json

Schema = Mapping[str, Any]
TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null"}
"""JSON Schema's name of each Python type."""
DEFINITIONS = ("$defs", "definitions")
OBJECT_OR_NONE = frozenset(("object", "null"))
ONE_PART = frozenset(("items", "additionalProperties", "not"))
MANY_PARTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems", "items"))
NAMED_PARTS = frozenset(("properties", "patternProperties", *DEFINITIONS))
"""Keywords whose value is a schema, a list of schemas, or a schema for each name."""
LONGEST_CHAIN = 20  # References that are followed from one to the next.
ENGINE = RegexOptions(size_limit=2**18)  # Compiles any pattern in about a millisecond, or refuses it.
OWN_ENGINE = FancyRegexOptions(backtrack_limit=100_000)  # For patterns of this process's own code: those of pydantic look ahead.
PATTERN_WEIGHT = 600  # The work of a pattern per byte that it reads, in that of a plain keyword: the worst one takes 3 µs.
HEAVIEST = 100_000
MOST_WORK = 10_000_000  # Weight of the schema times bytes of the value: at most some 50 ms.
MASK = "it"
REPEATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
"""For these all that is beside them is evaluated again, and again for each that is around."""
ELSEWHERE = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef")
"""By these a reference reaches what its text does not say."""


def resolve_reference(reference: str, root: Schema) -> Schema:
    """The schema that a reference within the document `root` points at, such as `#/$defs/Name`; {} if it points elsewhere."""
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, Mapping) and key in node:
            node = node[key]
        else:
            return {}
    return node if isinstance(node, Mapping) else {}


def resolved(schema: Any, root: Schema) -> Schema:
    """The schema with the reference followed that it is; what is beside a reference holds too; {} where it leads nowhere."""
    for _ in range(LONGEST_CHAIN):
        if not isinstance(schema, Mapping):
            break
        if not isinstance(reference := schema.get("$ref"), str):
            return schema
        target = resolve_reference(reference, root)
        schema = {**target, **{name: value for name, value in schema.items() if name != "$ref"}} if target else {}
    return {}


def with_parts(schema: Schema, change: Callable[[Any, str, str], Any]) -> dict[str, Any]:
    """The schema with each schema that it contains changed by `change(part, keyword, name)`; the name is that of a member, else empty."""

    def changed(keyword: str, value: Any) -> Any:
        if keyword in NAMED_PARTS and isinstance(value, Mapping):
            return {name: change(part, keyword, name) for name, part in value.items()}
        if keyword in MANY_PARTS and isinstance(value, list):
            return [change(part, keyword, "") for part in value]
        return change(value, keyword, "") if keyword in ONE_PART else value

    return {keyword: changed(keyword, value) for keyword, value in schema.items()}


def alternatives_of(schema: Schema, root: Schema, seen: set[str] | None = None) -> Iterator[Schema]:
    """The alternatives of a schema, with references resolved. Each is followed once: a second time it adds nothing, or never ends."""
    if not isinstance(schema, Mapping):  # true accepts anything
        yield {}
        return
    seen = set() if seen is None else seen
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in seen:
            seen.add(reference)
            yield from alternatives_of(resolve_reference(reference, root), root, seen)
        return
    among = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
    for arm in among:
        yield from alternatives_of(arm, root, seen)
    if not among:
        yield schema


def describes_object(schema: Any, root: Schema, seen: set[str] | None = None) -> bool:
    """True if a schema allows nothing but objects, and null, which is sent as no content. A reference is followed once."""
    if not isinstance(schema, Mapping):
        return False
    if "type" in schema or "properties" in schema:
        return types_of(schema) <= OBJECT_OR_NONE
    seen = set() if seen is None else seen
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return True
        seen.add(reference)
        return describes_object(resolve_reference(reference, root), root, seen)
    arms = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    found = [describes_object(each, root, seen) for each in arms]
    return (bool(found) and all(found)) or any(describes_object(each, root, seen) for each in schema.get("allOf", ()))


def values_of(arm: Schema) -> list[Any]:
    return [*arm.get("enum", ()), *([arm["const"]] if "const" in arm else ())]


def types_of(arm: Schema) -> frozenset[str]:
    """JSON Schema's names of the types that an alternative accepts; one that names none accepts texts and booleans, among all else."""
    declared = arm.get("type")
    if declared is not None:
        return frozenset((declared,) if isinstance(declared, str) else declared)
    if values := values_of(arm):
        return frozenset(TYPE_NAMES[type(value)] for value in values)
    return frozenset(("object",) if "properties" in arm else ("array",) if "items" in arm else ("string", "boolean"))


class PublishedSchema:
    def __init__(self, schema: Mapping[str, Any], *, is_own: bool = False, formats: bool = False) -> None:
        """`is_own` for a schema of this process's own code, which is checked without bounds. With `formats` they are checked too.

        Raises ValueError, with the reason, for a schema that is not checked: one that is wrong, endless or too much work.
        """
        self._schema = dict(schema)
        self._weight = 0.0 if is_own else weight_of(schema)
        if self._weight > HEAVIEST:
            raise ValueError("its references cannot be followed, or lead back" if self._weight == inf else "it is too much work")
        self._formats = formats
        self._engine = OWN_ENGINE if is_own else ENGINE
        self._whole = self._compiled()

    def _compiled(self, mask: str | None = None) -> Validator:
        return validator_for(self._schema, pattern_options=self._engine, validate_formats=self._formats, offline=True, mask=mask)

    @cached_property
    def _parts(self) -> ValidatorMap:
        """By the pointer of each part; made when the first arguments do not match."""
        return validator_map_for(self._schema, pattern_options=self._engine, validate_formats=self._formats, offline=True)

    def accepts(self, value: Any) -> bool:
        """Whether the value matches. ValueError for one that cannot be checked here."""
        if self._weight and self._weight * len(to_json(value)) > MOST_WORK:
            raise ValueError("the value is too long for this schema")
        return self._whole.is_valid(value)

    def mismatches(self, arguments: Mapping[str, Any]) -> Mapping[str, str]:
        """What is wrong with each argument that does not match, by its name, without its value; none if only all together do not."""
        properties = self._schema.get("properties", {})
        wrong = sorted(name for name in properties.keys() & arguments.keys() if not self._fits(name, arguments[name]))
        return {name: f"must match its schema: {json.dumps(properties[name])[:300]}" for name in wrong}

    def fault_of(self, value: Any) -> tuple[str, str]:
        """Of a value that does not match: the JSON pointer of a part that is wrong, and what is wrong with it, without the value."""
        for error in self._compiled(MASK).iter_errors(value):
            return "".join(f"/{step}" for step in error.instance_path), error.message[:300]
        return "", f"{MASK} does not match"

    def _fits(self, name: str, value: Any) -> bool:
        part = self._parts.get("#/properties/" + name.replace("~", "~0").replace("/", "~1"))
        return part is None or part.is_valid(value)


def weight_of(schema: Mapping[str, Any]) -> float:
    """The keywords that a check may apply at one place, with each reference followed; infinite if one may lead back to itself."""
    known: dict[str, float] = {}

    def weight(node: Any) -> float:
        if isinstance(node, list):
            return 1 + sum(map(weight, node))
        if not isinstance(node, Mapping):
            return 1
        patterns = ("pattern" in node) + len(node.get("patternProperties") or ())
        below = sum(member_weight(name, member) for name, member in node.items())
        return 1 + patterns * PATTERN_WEIGHT + below * (1 if REPEATED.isdisjoint(node) else 4)

    def member_weight(name: str, member: Any) -> float:
        if not isinstance(member, str):
            return weight(member)
        if name != "$ref":
            return inf if name in ELSEWHERE else 1
        if member not in known:
            known[member] = inf  # while it is followed
            target = resolve_reference(member, schema) if member.startswith("#/") and "%" not in member else None
            known[member] = weight(target) if target else inf
        return known[member]

    if "draft-04" in str(schema.get("$schema")):  # there `id` is what `$id` became
        return inf
    return weight({name: member for name, member in schema.items() if name != "$id"})
