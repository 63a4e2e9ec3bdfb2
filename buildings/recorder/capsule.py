"""What a capsule is: the state that an agent sends with a beat, as JSON, so that a replacement can continue its work. Pure.

A capsule is stored with its beat (beats.py), and handed over to the owner and to a replacement (takeover.py).
"""

import json
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from campus import Unstorable

MAX_CAPSULE_BYTES = 32_768
CAPSULES_PER_MONITOR = 5
PREVIEW_CHARACTERS = 200


class Unstored(NamedTuple):
    """In place of a capsule that cannot be stored: the reason, and whether it is the size."""

    reason: str
    is_too_large: bool = False


def packed(capsule: Any) -> bytes | Unstored:
    """The capsule as compact JSON in UTF-8, or why it cannot be stored."""
    if isinstance(capsule, Unstorable):
        return Unstored(capsule.reason)
    try:
        text = to_json(capsule)
    except ValueError as error:
        return Unstored(f"it cannot be encoded as JSON ({type(error).__name__})")
    if len(text) > MAX_CAPSULE_BYTES:
        return Unstored(f"{len(text):,} bytes, the limit is {MAX_CAPSULE_BYTES:,}", is_too_large=True)
    return text


def is_same(text: bytes, other: bytes) -> bool:
    """Whether two capsules are the same JSON value, whatever the order of an object's members."""
    return text == other or _canonical(text) == _canonical(other)


def _canonical(text: bytes) -> str:
    return json.dumps(from_json(text), sort_keys=True)


def preview(text: bytes) -> str:
    """The first characters of a capsule's JSON, for people."""
    shown = text.decode()
    return shown if len(shown) <= PREVIEW_CHARACTERS else f"{shown[: PREVIEW_CHARACTERS - 1]}…"


def is_stale(seq: int | None, last_seq: int | None) -> bool:
    """Whether a capsule has a lower seq than the last stored one."""
    return seq is not None and last_seq is not None and seq < last_seq


def is_new(seq: int | None, last_seq: int | None) -> bool:
    """Whether a capsule is to be stored; one with the seq of the last stored one is a retry."""
    return seq is None or last_seq is None or seq > last_seq
