"""Capsules: the state that an agent sends along with a beat, so that another can go on where it stopped. Pure."""

from typing import Any

from pydantic_core import to_json

from campus import Problem

LARGEST_CAPSULE = 32_768
KEPT_CAPSULES = 5
PREVIEW_CHARACTERS = 200


def packed(capsule: Any) -> bytes:
    """Compact JSON in UTF-8; Problem 413 when it is larger than a capsule may be."""
    text = to_json(capsule)
    if len(text) > LARGEST_CAPSULE:
        raise Problem(
            413,
            "capsule_too_large",
            f"the capsule is {len(text):,} bytes of compact JSON, and at most {LARGEST_CAPSULE:,} are kept: send what the next agent needs"
            " to go on, and leave the rest where it can be fetched. Neither the beat nor the capsule was stored; the last capsule is kept",
        )
    return text


def preview(text: bytes) -> str:
    """The beginning of a capsule's JSON, for people."""
    shown = text.decode()
    return shown if len(shown) <= PREVIEW_CHARACTERS else f"{shown[: PREVIEW_CHARACTERS - 1]}…"


def is_stale(seq: int | None, last_seq: int | None) -> bool:
    """Whether a capsule is older than the last one; the same number again is a retry, and is no older."""
    return seq is not None and last_seq is not None and seq < last_seq


def is_new(seq: int | None, last_seq: int | None) -> bool:
    """Whether there is anything to store: a retry brings what is there already."""
    return seq is None or last_seq is None or seq > last_seq
