"""Reads JSON strictly: every value that it returns can be stored, compared and written again."""

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from twins.problems import MOST_ERRORS, Problem, pointer_to, subject_of

# Only a text that matches can hold what `unstorable_reason` looks for: an escaped NUL, a long run of digits, an exponent.
SUSPICIOUS = re.compile(rb"\\u0000|\d{19}|\d[eE]")
SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST_INTEGER = 2**63
MANY_DIGITS = 100


@dataclass(frozen=True, slots=True)
class Unstorable:
    """Replaces a value that cannot be stored, for an argument that the tool's route lists as lenient; `reason` says why."""

    reason: str


def read_json(data: bytes | bytearray | memoryview, *, lenient: Collection[str] = ()) -> Any:
    """The value of a JSON text in UTF-8.

    Raises Problem 400 `invalid_json` for malformed JSON, NaN and infinities (1e999 too), lone surrogates, NUL
    characters, integers beyond 64 bits, and nesting of more than some 200 levels. In a member of the outermost object
    that `lenient` lists, Unstorable replaces any of these; malformed JSON is an error all the same.
    """
    raw = bytes(data)
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        value = _read_tolerantly(raw) if lenient else None
        if value is None:
            raise Problem(400, "invalid_json", f"the JSON cannot be read: {error}") from None
        return storable(value, lenient)
    if SUSPICIOUS.search(raw) and unstorable_reason(value):
        return storable(value, lenient)
    return value


def storable(value: Any, lenient: Collection[str] = ()) -> Any:
    """The value; Unstorable replaces its members that `lenient` lists and that cannot be stored. Problem 400 if anything else cannot."""
    marked = value
    if lenient and isinstance(value, Mapping):
        reasons = {name: reason for name in lenient if name in value and (reason := _obstacle(value[name]))}
        marked = {**value, **{name: Unstorable(reason) for name, reason in reasons.items()}}
    if reason := _obstacle(marked):
        raise Problem(400, "invalid_json", f"the JSON cannot be accepted: {reason}")
    return marked


def require_storable(arguments: Any) -> None:
    """Raises Problem 400 `invalid_json` that names each argument with a value that the strict reader would reject."""
    if unstorable_reason(arguments) is None:
        return
    members = arguments.items() if isinstance(arguments, Mapping) else ()
    reasons = [
        f"{subject_of(pointer_to('arguments', name))}: {reason}" for name, value in members if (reason := unstorable_reason({name: value}))
    ]
    raise Problem(400, "invalid_json", "; ".join(reasons[:MOST_ERRORS]) or "the arguments cannot be accepted")


def unstorable_reason(value: Any) -> str | None:
    """Why a JSON value cannot be stored or written again; None if it can."""
    if type(value) is str and value.isascii() and "\0" not in value:
        return None  # nearly every text in a URL
    waiting: list[Iterable[Any]] = [(value,)]
    while waiting:
        for each in waiting.pop():
            kind = type(each)
            if kind is str:
                if "\0" in each:
                    return "a text holds the character NUL"
                if not each.isascii() and SURROGATE.search(each):
                    return "a text holds half of a character (a lone surrogate)"
            elif kind is int:
                if not -LONGEST_INTEGER <= each < LONGEST_INTEGER:
                    return "an integer does not fit into 64 bits"
            elif kind is float:
                if not math.isfinite(each):
                    return "a number is too large, or not a number (NaN)"
            elif kind is dict:
                waiting += (each, each.values())
            elif kind is list:
                waiting.append(each)
    return None


def _obstacle(value: Any) -> str | None:
    """As `unstorable_reason`, for a value that the strict reader has not seen: it may also be nested too deeply."""
    if reason := unstorable_reason(value):
        return reason
    try:
        to_json(value, fallback=lambda _: None)
    except ValueError:
        return "it is nested too deeply"
    return None


def _integer(digits: str) -> int:
    """The integer; one of more digits than Python converts is cut to a number that cannot be stored either."""
    return int(digits[:MANY_DIGITS])


def _read_tolerantly(raw: bytes) -> dict[str, Any] | None:
    """The object of a JSON text that may hold NaN, infinities, lone surrogates and deep nesting; None for malformed JSON."""
    try:
        value = json.loads(raw.decode(), parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
