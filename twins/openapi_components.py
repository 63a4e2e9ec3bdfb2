"""The named schemas of an OpenAPI document: one name for each schema; a second schema of the same name gets a longer one."""

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from twins.openapi_schema import Schema, to_3_0
from twins.operation import Operation
from twins.problems import problem_schema

PROBLEM = "Problem"


class Components:
    """Collects schemas while a document is made; `schemas` is the content of components/schemas."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.schemas: dict[str, Any] = {PROBLEM: problem_schema(), **given}
        self._sources: dict[str, Any] = {}

    def inline(self, schema: Mapping[str, Any], operation: Operation) -> Schema:
        """An argument's schema in OpenAPI's dialect, to be written where it is used; the schemas that it refers to become components."""
        return to_3_0(schema, self._names_for(schema, operation.tool.parameters, operation).__getitem__)

    def named(self, name: str, schema: Mapping[str, Any], operation: Operation) -> Schema:
        """Add a whole schema as a component with this name or a longer one; returns the reference to it."""
        definitions = schema.get("$defs", {})
        names = self._names_for(schema, schema, operation)
        whole = _untitled(to_3_0(schema))
        # a recursive schema is one of its own definitions
        own = next((names[each] for each in names if _untitled(to_3_0(definitions[each])) == whole), None)
        if own is None:
            own = self._name(name, _source_of({**definitions, "": schema}, [""]), operation)
            self.schemas[own] = _untitled(to_3_0(schema, names.__getitem__))
        return {"$ref": f"#/components/schemas/{own}"}

    def _names_for(self, schema: Mapping[str, Any], root: Mapping[str, Any], operation: Operation) -> dict[str, str]:
        """The component names of all definitions that a schema refers to, directly or not; adds these components."""
        definitions = root.get("$defs", {})
        reached = _reached(schema, definitions)
        names = {name: self._name(name, _source_of(definitions, [name]), operation) for name in reached}
        for name, own in names.items():
            self.schemas[own] = _untitled(to_3_0(definitions[name], names.__getitem__))
        return names

    def _name(self, wanted: str, source: Any, operation: Operation) -> str:
        """The name under which the same schema was added, or a free one; `source` is the schema with everything it refers to."""
        for name in _candidates(wanted, operation):
            if self._sources.get(name) == source:
                return name
            if name not in self.schemas:
                self._sources[name] = source
                self.schemas[name] = {}
                return name
        raise AssertionError("the candidates never end")


def _candidates(wanted: str, operation: Operation) -> Iterator[str]:
    """The name itself, then with its server's name as a prefix, then with its tool's too, then with a number."""
    base = re.sub(r"[^A-Za-z0-9._-]", "_", wanted)
    server, tool = in_capitals(operation.server), in_capitals(operation.name)
    yield base
    yield f"{server}{base}"
    yield f"{server}{tool}{base}"
    yield from (f"{server}{tool}{base}{number}" for number in count(2))


def in_capitals(name: str) -> str:
    """A name in the style of a class: `fleet_status` becomes `FleetStatus`."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[^A-Za-z0-9]+", name))


def _untitled(schema: Schema) -> Schema:
    """The schema without its title: code generators would use it as a second name, and two schemas may have the same title."""
    return {key: value for key, value in schema.items() if key != "title"}


def _source_of(definitions: Mapping[str, Any], names: list[str]) -> dict[str, Schema]:
    """Definitions with everything they refer to, so that equal schemas of different documents are equal."""
    reached = {*names}.union(*(_reached(definitions[name], definitions) for name in names))
    return {name: _untitled(to_3_0(definitions[name])) for name in sorted(reached)}


def _reached(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    """The names of the definitions that a schema refers to, directly or through others."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        for name in _references(waiting.pop()):
            if name in definitions and name not in found:
                found.add(name)
                waiting.append(definitions[name])
    return found


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            yield reference.removeprefix("#/$defs/")
        for name, value in node.items():
            if name != "$defs":
                yield from _references(value)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from _references(value)
