"""Rules that mark a tool's result as a failure: a JSON pointer, and the value or the pattern that is found there. Pure.

For servers that report a failure as a result: {"error": "no such city"} and isError false. Such a call is not charged.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

NEVER = "never"
ABSENT = object()
FORMS = 'write fails_if = "/error", { at = "/status", equals = "failed" }, { at = "/text", matches = "^Error" }, or "never"'
LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class FailureRule:
    """A result is a failure if `at`, a JSON pointer, leads to a value that equals or matches; without both, to one that is not empty."""

    at: str
    equals: Any = ABSENT
    matches: re.Pattern[str] | None = None

    def failure_in(self, body: Any) -> str | None:
        """What the result reports, in one line; None if it is no failure. `body` is the result as HTTP answers it."""
        for document in documents_in(body):
            value = value_at(document, self.at)
            if value is not ABSENT and self._fits(value):
                return " ".join(str(value).split())[:LONGEST_REASON]
        return None

    def _fits(self, value: Any) -> bool:
        if self.matches is not None:
            return isinstance(value, str) and self.matches.search(value) is not None
        return bool(value) if self.equals is ABSENT else bool(value == self.equals and type(value) is type(self.equals))


def read_rule(data: Any) -> FailureRule | None:
    """The rule that campus.toml writes; None for "never". Raises ValueError with a sentence for what is none."""
    if data == NEVER:
        return None
    table = {"at": data} if isinstance(data, str) else data
    at = table.get("at", "") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(at, str) or table.keys() - {"at", "equals", "matches"} or len(table) > 2:
        raise ValueError(f"fails_if = {data!r} is no rule; {FORMS}")
    if (at and not at.startswith("/")) or not (at or "matches" in table):
        raise ValueError(f"fails_if names {at!r}, which is no JSON pointer; {FORMS}")
    try:
        matches = re.compile(table["matches"]) if "matches" in table else None
    except (re.error, TypeError) as error:
        raise ValueError(f"fails_if: matches = {table['matches']!r} is no pattern ({error}); {FORMS}") from None
    return FailureRule(at, table.get("equals", ABSENT), matches)


def documents_in(body: Any) -> Iterator[Any]:
    """The result, and what it wraps: the one member `result`, or the texts of its content, each read as JSON where it is."""
    yield body
    match body:
        case {"result": inner, **rest} if not rest:
            yield _read(inner)
        case {"content": [*blocks], **rest} if not rest:
            yield from (_read(block["text"]) for block in blocks if isinstance(block, Mapping) and "text" in block)


def value_at(document: Any, pointer: str) -> Any:
    """What a JSON pointer (RFC 6901) leads to, or ABSENT."""
    for step in (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]):
        if isinstance(document, Mapping) and step in document:
            document = document[step]
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return ABSENT
    return document


def _read(inner: Any) -> Any:
    if not isinstance(inner, str):
        return inner
    try:
        return from_json(inner)
    except ValueError:
        return inner
