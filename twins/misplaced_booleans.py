"""Finds `true` and `false` where a tool's input schema takes a number, because Python and pydantic treat them as 1 and 0. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from twins.operation import Operation
from twins.parameter_decoding import TYPE_NAMES, Schema, alternatives_of, resolve_reference

NUMERIC = frozenset(("integer", "number"))
SUSPECTS = frozenset((bool, dict, list))
"""The types of values that are a boolean, or may contain one."""
ANY_TYPE = frozenset(("boolean",))
"""An alternative that names no type accepts booleans, among everything else."""
TYPE_KEYWORDS = ("type", "enum", "const", "properties", "additionalProperties", "items", "prefixItems")
Steps = tuple[str | int, ...]


class MisplacedBooleans:
    """The search in the arguments of one operation. It is false if the operation takes no numbers."""

    def __init__(self, operation: Operation) -> None:
        self._root: Schema = operation.tool.parameters
        self._schemas = {each.name: each.schema for each in operation.parameters if _reaches_number(each.schema, self._root, set())}

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def find(self, arguments: Mapping[str, Any]) -> list[Steps]:
        """The paths of all booleans that were sent where a number belongs."""
        found: list[Steps] = []
        for name, value in arguments.items():
            if type(value) in SUSPECTS and name in self._schemas and (type(value) is bool or _contains_boolean(value)):
                found += ((name, *steps) for steps in _misplaced(value, self._schemas[name], self._root))
        return found


def _contains_boolean(value: Any) -> bool:
    """True if a boolean is anywhere in an object or a list. A long list of plain values costs one pass in C."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        members = list(node.values()) if type(node) is dict else node
        kinds = set(map(type, members))
        if bool in kinds:
            return True
        if not kinds.isdisjoint((dict, list)):
            waiting += (member for member in members if type(member) in (dict, list))
    return False


def _misplaced(value: Any, schema: Schema, root: Schema) -> Iterator[Steps]:
    """The paths to booleans in a value where its schema takes numbers and no booleans."""
    arms = list(alternatives_of(schema, root))
    if isinstance(value, bool):
        kinds = frozenset[str]().union(*map(_types_of, arms))
        if not kinds.isdisjoint(NUMERIC) and "boolean" not in kinds:
            yield ()
        return
    members: Iterator[tuple[str | int, Any]]
    members = iter(value.items()) if isinstance(value, dict) else iter(enumerate(value)) if isinstance(value, list) else iter(())
    for step, member in members:
        if below := [part for arm in arms for part in _member_schemas(arm, step)]:
            yield from ((step, *steps) for steps in _misplaced(member, {"anyOf": below}, root))


def _member_schemas(arm: Schema, step: str | int) -> list[Schema]:
    """The schema of one member or item in an alternative, if it has one."""
    if isinstance(step, int):
        first = arm.get("prefixItems", ())
        found = first[step] if step < len(first) else arm.get("items")
    else:
        found = arm.get("properties", {}).get(step, arm.get("additionalProperties"))
    return [found] if isinstance(found, Mapping) else []


def _types_of(arm: Schema) -> frozenset[str]:
    """JSON Schema's names of the types that an alternative accepts; a duration may also be a number of seconds."""
    if not any(keyword in arm for keyword in TYPE_KEYWORDS):
        return ANY_TYPE
    if arm.get("format") == "duration":
        return NUMERIC
    declared = arm.get("type")
    if declared is not None:
        return frozenset((declared,) if isinstance(declared, str) else declared)
    values = [*arm.get("enum", ()), *([arm["const"]] if "const" in arm else ())]
    return frozenset(TYPE_NAMES[type(value)] for value in values)


def _reaches_number(node: Any, root: Schema, seen: set[str]) -> bool:
    """True if a number is accepted anywhere within a schema."""
    if isinstance(node, list | tuple):
        return any(_reaches_number(each, root, seen) for each in node)
    if not isinstance(node, Mapping):
        return False
    reference = node.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        if _reaches_number(resolve_reference(reference, root), root, seen):
            return True
    if not _types_of(node).isdisjoint(NUMERIC):
        return True
    below = [node.get(keyword) for keyword in ("anyOf", "oneOf", "allOf", "items", "prefixItems", "additionalProperties")]
    return _reaches_number([*below, *node.get("properties", {}).values()], root, seen)
