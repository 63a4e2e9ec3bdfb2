"""Whether an Idempotency-Key is random enough that nobody else sends the same one, and gets the answer."""

import re
from collections.abc import Mapping
from operator import eq
from typing import Any

from starlette.types import Scope

from twins import Problem

__all__ = ["HOW_TO_MAKE_A_KEY", "check_idempotency_key"]

IDEMPOTENCY_KEY = "idempotency-key"
SHORTEST_KEY, LONGEST_KEY = 22, 255
LEAST_DISTINCT = 8
LEAST_UNPREDICTED = 8
LEAST_MIXED = 5
LONGEST_PERIOD = 40
SEPARATORS = re.compile(r"[^0-9A-Za-z]")
TIMES = re.compile(r"(?:19|20)\d\d-?[01]\d-?[0-3]\d(?:[T_ ]?[0-2]\d:?[0-5]\d(?::?[0-5]\d(?:[.,]\d+)?)?)?Z?")
RUNS = re.compile(r"[0-9]+|[a-z]+|[A-Z]+")  # Characters of one kind in a row.
RANDOM_FORMATS = re.compile(r"(?=.*[A-Fa-f])[0-9A-Fa-f]{30,}|(?=.*[A-Z])[0-7][0-9A-HJKMNP-TV-Z]{25}")
"""Hexadecimal digits, such as those of a UUID, and ULIDs: their letters form no words."""
PUBLISHED = frozenset(
    (
        "550e8400e29b41d4a716446655440000",
        "123e4567e89b12d3a456426614174000",
        "f47ac10b58cc4372a5670e02b2c3d479",
        "f81d4fae7dec11d0a76500a0c91e6bf6",
        "8e03978e40d543e8bc936894a57f9324",
        "9b1deb4d3b7d4bad9bdd2b0d7b3dcb6d",
        "1b9d6bcdbbfd4b2d9b5dab8dfbbd4bed",
        "3f2504e04f8911d39a0c0305e82c3301",
        "3fa85f6457174562b3fc2c963f66afa6",
        "6ba7b8109dad11d180b400c04fd430c8",
        "7c9e6679742540de944be07fc1f90ae7",
        "d290f1ee6c544b0190e6d701748f0851",
        "01arz3ndektsv4rrffq69g5fav",
    )
)
"""Examples of UUIDs, ULIDs and Idempotency-Keys in standards and manuals, which people copy."""
HOW_TO_MAKE_A_KEY = (
    f"Use {SHORTEST_KEY} to {LONGEST_KEY} random characters: the output of python3 -c 'import secrets; print(secrets.token_urlsafe(24))' "
    "or of openssl rand -hex 16, or a random UUID (version 4)"
)
"""What a refusal tells a caller about an Idempotency-Key that others could guess."""


def weakness_of(key: str) -> str | None:
    """Why a key is refused, as the end of the sentence "the key …"; None for a strong one.

    A strong key has 22 to 255 printable ASCII characters, and of its letters and digits

    - at least 8 are different ones;
    - at least 8 are new: neither the same as one of the two before, nor next to it ("a1b2c3", "2345", "aabb" count);
    - at most three quarters repeat the character at a fixed distance of up to 40 before ("user0001user0002");
    - runs of small letters, of capitals and of digits come in turns, as in random text and not as in words, dates and
      numbers: with two counted for each longer run, and none for a date, there are at least 5. Hexadecimal digits and
      ULIDs need not show that.

    It is no example from a manual either. A random UUID, 16 or more random bytes in hexadecimal or base64, and a random ULID
    fail by chance less than once in 200,000 times. What an agent makes up to look random can pass.
    """
    if len(key) > LONGEST_KEY:
        return f"has {len(key)} characters, more than {LONGEST_KEY}"
    if len(key) < SHORTEST_KEY:
        return f"has {len(key)} characters, fewer than {SHORTEST_KEY}"
    if not (key.isascii() and key.isprintable()):
        return "has characters other than printable ASCII"
    bare = SEPARATORS.sub("", key)
    if bare.lower() in PUBLISHED:
        return "is an example from a manual"
    if (distinct := len(set(bare))) < LEAST_DISTINCT:
        return f"has {distinct} different letters and digits"
    if _unpredicted(bare) < LEAST_UNPREDICTED or _is_periodic(bare):
        return "counts or repeats"
    if not RANDOM_FORMATS.fullmatch(bare) and _mixed(SEPARATORS.sub("", TIMES.sub("", key))) < LEAST_MIXED:
        return "is made of words, dates or numbers"
    return None


def check_idempotency_key(key: str, *, name: str = "Idempotency-Key") -> None:
    """Problem 400 `weak_idempotency_key` for a key by which others could find the caller's answer, or that is too long.

    `name` is what the caller sent it as.
    """
    if reason := weakness_of(key):
        danger = "" if len(key) > LONGEST_KEY else ", so that another caller may send the same one and get your answer"
        raise Problem(
            400,
            "weak_idempotency_key",
            f"The {name} {reason}{danger}. {HOW_TO_MAKE_A_KEY}. Nothing was done or charged.",
        )


def _unpredicted(text: str) -> int:
    codes = text.encode()
    started = 1 + (abs(codes[1] - codes[0]) > 1)
    return started + sum(
        abs(one - before) > 1 < abs(one - earlier) for earlier, before, one in zip(codes, codes[1:], codes[2:], strict=False)
    )


def _is_periodic(text: str) -> bool:
    distances = range(2, min(len(text) // 2, LONGEST_PERIOD) + 1)
    return any(sum(map(eq, text[distance:], text)) >= (len(text) - distance) * 3 / 4 for distance in distances)


def _mixed(text: str) -> int:
    return sum(min(len(run), 2) for run in RUNS.findall(text))


def idempotency_key_in(scope: Scope, *more: Mapping[str, Any] | None) -> str | None:
    """The caller's Idempotency-Key: from the header, else the first in one of `more`, in either spelling."""
    for name, value in scope["headers"]:
        if name == IDEMPOTENCY_KEY.encode():
            key: str = value.decode("latin-1")
            return key
    names = (IDEMPOTENCY_KEY, IDEMPOTENCY_KEY.replace("-", "_"))
    found = (members[name] for members in more if members for name in names if isinstance(members.get(name), str))
    return next(found, None)
