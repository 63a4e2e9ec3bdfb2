"""The one strict reader of JSON: what it lets through can be stored, compared and written again."""

import math
import re
from typing import Any

from pydantic_core import from_json

from twins.problems import Problem

# Only a text with one of these can hold what `hostile` looks for: an escaped NUL, a long run of digits, an exponent.
SUSPICIOUS = re.compile(rb"\\u0000|\d{19}|\d[eE]")
SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST_INTEGER = 2**63


def read_json(data: bytes | bytearray | memoryview) -> Any:
    """The value of a JSON text, in UTF-8.

    Raises Problem 400 `invalid_json` for broken JSON, NaN and infinities (1e999 too), lone surrogates, NUL
    characters, integers beyond 64 bits, and nesting of more than some 200 levels.
    """
    raw = bytes(data)
    try:
        value = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Problem(400, "invalid_json", f"the JSON cannot be read: {error}") from None
    if SUSPICIOUS.search(raw) and (reason := hostile(value)):
        raise Problem(400, "invalid_json", f"the JSON cannot be taken: {reason}")
    return value


def hostile(value: Any) -> str | None:
    """Why a JSON value cannot be stored or written again, or None for one that can."""
    if type(value) is str and value.isascii() and "\0" not in value:
        return None  # as nearly every text in an address is
    waiting = [value]
    while waiting:
        match waiting.pop():
            case bool() | None:
                pass
            case str(text) if "\0" in text:
                return "a text holds the character NUL"
            case str(text) if SURROGATE.search(text):
                return "a text holds half of a character (a lone surrogate)"
            case int(number) if not -LONGEST_INTEGER <= number < LONGEST_INTEGER:
                return "an integer does not fit into 64 bits"
            case float(number) if not math.isfinite(number):
                return "a number is too large"
            case list(items):
                waiting.extend(items)
            case dict(members):
                waiting.extend(members)
                waiting.extend(members.values())
    return None
