"""The check of a value against a schema that a tool publishes: of its arguments before it is called, of its result before it is charged.

A schema of another server is checked in bounded time, whatever it says. Patterns are matched by an engine without backtracking, and no
reference is ever fetched. The work that a schema makes is estimated before: alternatives that refer to alternatives, or hundreds of
patterns, take seconds in any validator, in which nobody else is answered.
"""

import json
from collections.abc import Mapping
from functools import cached_property
from math import inf
from typing import Any

from jsonschema_rs import FancyRegexOptions, RegexOptions, Validator, ValidatorMap, validator_for, validator_map_for
from pydantic_core import to_json

from twins.tool.operation import resolve_reference

ENGINE = RegexOptions(size_limit=2**18)
"""Compiles any pattern in about a millisecond, or refuses it."""
OWN_ENGINE = FancyRegexOptions(backtrack_limit=100_000)
"""For patterns of this process's own code: those of pydantic look ahead."""
PATTERN_WEIGHT = 600
"""The work of a pattern per byte that it reads, in that of a plain keyword: the worst one takes 3 µs."""
HEAVIEST = 100_000
MOST_WORK = 10_000_000
"""Weight of the schema times bytes of the value: at most some 50 ms."""
MASK = "it"
REPEATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
"""For these all that is beside them is evaluated again, and again for each that is around."""
ELSEWHERE = ("$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef")
"""By these a reference reaches what its text does not say."""


class PublishedSchema:
    """One schema, compiled once."""

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
