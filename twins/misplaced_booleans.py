"""Where a tool takes numbers, by its input schema: `true` and `false` are no numbers, though Python counts them as 1 and 0. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from twins.operation import Operation
from twins.parameter_decoding import NAMES, Schema, alternatives_of, resolve_reference

NUMERIC = frozenset(("integer", "number"))
SUSPECTS = frozenset((bool, dict, list))
"""The kinds of values that are a boolean, or may hold one."""
OPEN = frozenset(("boolean",))
"""What an alternative that says nothing of types takes among others."""
SAYS_TYPE = ("type", "enum", "const", "properties", "additionalProperties", "items", "prefixItems")
Steps = tuple[str | int, ...]


class MisplacedBooleans:
    """The arguments of one operation that are numbers, or hold some."""

    def __init__(self, operation: Operation) -> None:
        self._root: Schema = operation.tool.parameters
        self._schemas = {each.name: each.schema for each in operation.parameters if _reaches_number(each.schema, self._root, set())}

    def __bool__(self) -> bool:
        return bool(self._schemas)

    def booleans(self, arguments: Mapping[str, Any]) -> list[Steps]:
        """The paths of all booleans that were sent where a number belongs."""
        found: list[Steps] = []
        for name, value in arguments.items():
            if type(value) in SUSPECTS and name in self._schemas and (type(value) is bool or _holds_boolean(value)):
                found += ((name, *steps) for steps in _misplaced(value, self._schemas[name], self._root))
        return found


def _holds_boolean(value: Any) -> bool:
    """Whether a boolean is anywhere in an object or a list; a long list of plain values costs one pass in C."""
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
        kinds = frozenset[str]().union(*map(_kinds_of, arms))
        if not kinds.isdisjoint(NUMERIC) and "boolean" not in kinds:
            yield ()
        return
    members: Iterator[tuple[str | int, Any]]
    members = iter(value.items()) if isinstance(value, dict) else iter(enumerate(value)) if isinstance(value, list) else iter(())
    for step, member in members:
        if below := [part for arm in arms for part in _part_of(arm, step)]:
            yield from ((step, *steps) for steps in _misplaced(member, {"anyOf": below}, root))


def _part_of(arm: Schema, step: str | int) -> list[Schema]:
    """What an alternative says of one member or item."""
    if isinstance(step, int):
        first = arm.get("prefixItems", ())
        said = first[step] if step < len(first) else arm.get("items")
    else:
        said = arm.get("properties", {}).get(step, arm.get("additionalProperties"))
    return [said] if isinstance(said, Mapping) else []


def _kinds_of(arm: Schema) -> frozenset[str]:
    """JSON's names of the types that an alternative takes; a length of time is taken as a number of seconds too."""
    if not any(word in arm for word in SAYS_TYPE):
        return OPEN
    if arm.get("format") == "duration":
        return NUMERIC
    said = arm.get("type")
    if said is not None:
        return frozenset((said,) if isinstance(said, str) else said)
    values = [*arm.get("enum", ()), *([arm["const"]] if "const" in arm else ())]
    return frozenset(NAMES[type(value)] for value in values)


def _reaches_number(node: Any, root: Schema, seen: set[str]) -> bool:
    """Whether a number is taken anywhere within a schema."""
    if isinstance(node, list | tuple):
        return any(_reaches_number(each, root, seen) for each in node)
    if not isinstance(node, Mapping):
        return False
    reference = node.get("$ref")
    if isinstance(reference, str) and reference not in seen:
        seen.add(reference)
        if _reaches_number(resolve_reference(reference, root), root, seen):
            return True
    if not _kinds_of(node).isdisjoint(NUMERIC):
        return True
    below = [node.get(word) for word in ("anyOf", "oneOf", "allOf", "items", "prefixItems", "additionalProperties")]
    return _reaches_number([*below, *node.get("properties", {}).values()], root, seen)
