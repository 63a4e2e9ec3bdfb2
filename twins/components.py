"""The named schemas of an OpenAPI document: met again they keep their name, another of the same name gets a number."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from twins.problems import problem_schema
from twins.schema_3_0 import Schema, to_3_0

PROBLEM = "Problem"


class Components:
    """Collects schemas while a document is made; `schemas` is what goes under components/schemas."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.schemas: dict[str, Any] = {PROBLEM: problem_schema(), **given}
        self._sources: dict[str, Any] = {}

    def inline(self, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Schema:
        """A schema in OpenAPI's words, for the place where it is used; what it refers to in `root` becomes components."""
        return to_3_0(schema, self._names_for(schema, root).__getitem__)

    def named(self, name: str, schema: Mapping[str, Any]) -> Schema:
        """A whole schema as a component of about this name: what comes back refers to it."""
        names = self._names_for(schema, schema)
        own = self._name(name, {"": schema})
        self.schemas[own] = to_3_0(schema, names.__getitem__)
        return {"$ref": f"#/components/schemas/{own}"}

    def _names_for(self, schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, str]:
        """Component names of all definitions that a schema reaches; they are added on the way."""
        definitions = root.get("$defs", {})
        names = {name: self._name(name, _closure(name, definitions)) for name in _reached(schema, definitions)}
        for name, own in names.items():
            self.schemas[own] = to_3_0(definitions[name], names.__getitem__)
        return names

    def _name(self, wanted: str, source: Any) -> str:
        """A free name, or the one under which the same source was added; `source` holds all that the schema means."""
        base = re.sub(r"[^A-Za-z0-9._-]", "_", wanted)
        number = 1
        while True:
            name = base if number == 1 else f"{base}{number}"
            if self._sources.get(name) == source:
                return name
            if name not in self.schemas:
                self._sources[name] = source
                self.schemas[name] = {}
                return name
            number += 1


def _reached(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    """The names of the definitions to which a schema leads, directly or by others."""
    found: set[str] = set()
    waiting = [schema]
    while waiting:
        for name in _references(waiting.pop()):
            if name in definitions and name not in found:
                found.add(name)
                waiting.append(definitions[name])
    return found


def _closure(name: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with all that it leads to: what it means, whatever else its document defines."""
    return {each: definitions[each] for each in _reached(definitions[name], definitions) | {name}}


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
