"""Reads JSON strictly: every value that it returns can be stored, compared and written again."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from twins.problems import MOST_ERRORS, Problem, pointer_to, subject_of

MOST_VALUES = 10_000  # How many values the JSON of a request may hold: an empty object takes three bytes there, and 70 in memory.
READERS = 2  # How many large bodies are read at the same time, each in a thread.
SHAPES = bytes(b"0"[0] if each in b"0123456789" else b"e"[0] if each in b"eE" else 0 for each in range(256))
"""A table for bytes.translate, in which every digit becomes a zero, and E becomes e. That is ten times as fast as a pattern."""
LONG_NUMBER = b"0" * 19
"""Only JSON with so many digits in a row can hold an integer beyond 64 bits, which JSON readers treat differently."""
LONG_INTEGER = re.compile(rb"(?<![\d.])-?\d{19,}(?![\d.eE])")
LONGEST_INTEGER = 2**63
MANY_DIGITS = 100


def read_json(data: bytes | bytearray | memoryview, *, lenient: Collection[str] = ()) -> Any:
    """The value of a JSON text in UTF-8.

    Raises Problem 400 `invalid_json` for malformed JSON, NaN and infinities (1e999 too), lone surrogates, NUL
    characters, integers beyond 64 bits, and nesting of more than some 200 levels. In a member of the outermost object
    that `lenient` lists, all of these are accepted; malformed JSON is an error all the same.
    """
    raw = bytes(data)
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        value = _read_tolerantly(raw) if lenient else None
        if value is None:
            raise Problem(400, "invalid_json", f"the JSON cannot be read: {error}") from None
    else:
        if not _is_suspicious(raw):
            return value
    judged = {name: member for name, member in value.items() if name not in lenient} if isinstance(value, dict) else value
    if reason := unstorable_reason(judged):
        raise Problem(400, "invalid_json", f"the JSON cannot be accepted: {reason}")
    return value


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
    """Why a JSON value cannot be stored or written again; None if it can. It is written to find out: a walk takes ten times as long."""
    if type(value) is str and value.isascii() and "\0" not in value:
        return None  # nearly every text in a URL
    try:
        written = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str).encode()
        to_json(value, fallback=lambda _: None)
    except UnicodeEncodeError:
        return "a text holds half of a character (a lone surrogate)"
    except (RecursionError, PydanticSerializationError):
        return "it is nested too deeply"
    except ValueError:
        return "a number is too large, or not a number (NaN)"
    if b"\\u0000" in written and b"\\u0000" in written.replace(b"\\\\", b""):
        return "a text holds the character NUL"
    if LONG_NUMBER in written.translate(SHAPES):
        integers = map(int, LONG_INTEGER.findall(_without_texts(written)))
        if not all(-LONGEST_INTEGER <= each < LONGEST_INTEGER for each in integers):
            return "an integer does not fit into 64 bits"
    return None


def has_too_many_values(body: bytes) -> bool:
    """True if JSON holds more than MOST_VALUES values. None of them is read: they are counted by what separates them, outside of texts."""
    if len(body) <= MOST_VALUES or _separators(body) < MOST_VALUES:
        return False
    # a member has a name and a value, with two quotation marks each
    return _unescaped(body).count(b'"') > 4 * MOST_VALUES or _separators(_without_texts(body)) >= MOST_VALUES


def _separators(raw: bytes) -> int:
    """Each value follows a comma, or begins a list or an object, or is the only one."""
    return raw.count(b",") + raw.count(b"[") + raw.count(b"{")


def _unescaped(raw: bytes) -> bytes:
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw


def _without_texts(raw: bytes) -> bytes:
    return b"".join(_unescaped(raw).split(b'"')[::2])


def _is_suspicious(raw: bytes) -> bool:
    """True if JSON may hold what `unstorable_reason` looks for: an escaped NUL, a long run of digits, an exponent."""
    shapes = raw.translate(SHAPES)
    return b"\\u0000" in raw or LONG_NUMBER in shapes or b"0e" in shapes


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
