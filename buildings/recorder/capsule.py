"""Capsules: the state that an agent sends along with a beat, so that another can go on where it stopped. Pure."""

import json
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from campus import Unstorable

LARGEST_CAPSULE = 32_768
CAPSULES_PER_MONITOR = 5
PREVIEW_CHARACTERS = 200


class Unstored(NamedTuple):
    """What stands for a capsule that cannot be stored: why, and whether for its size."""

    reason: str
    is_too_large: bool = False


def packed(capsule: Any) -> bytes | Unstored:
    """Compact JSON in UTF-8; or why it cannot be stored."""
    if isinstance(capsule, Unstorable):
        return Unstored(capsule.reason)
    try:
        text = to_json(capsule)
    except ValueError as error:
        return Unstored(f"it cannot be written as JSON ({type(error).__name__})")
    if len(text) > LARGEST_CAPSULE:
        return Unstored(f"{len(text):,} bytes, the limit is {LARGEST_CAPSULE:,}", is_too_large=True)
    return text


def is_same(text: bytes, other: bytes) -> bool:
    """Whether two capsules are the same JSON value: the order of an object's members does not count."""
    return text == other or _canonical(text) == _canonical(other)


def _canonical(text: bytes) -> str:
    return json.dumps(from_json(text), sort_keys=True)


def preview(text: bytes) -> str:
    """The beginning of a capsule's JSON, for people."""
    shown = text.decode()
    return shown if len(shown) <= PREVIEW_CHARACTERS else f"{shown[: PREVIEW_CHARACTERS - 1]}…"


def is_stale(seq: int | None, last_seq: int | None) -> bool:
    """Whether a capsule is older than the last one; the same number again is no older."""
    return seq is not None and last_seq is not None and seq < last_seq


def is_new(seq: int | None, last_seq: int | None) -> bool:
    """Whether there is anything to store: a retry brings what is there already."""
    return seq is None or last_seq is None or seq > last_seq
