"""A key as `campus key list` shows it, and the rule that says how it stands. Pure: no clock."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from campus.caller import Key

KeyState = Literal["valid", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """One key with all that the operator may know of it.

    `prefix` is the first 12 of the token's random characters. `replaced_by` is the id of the key that a rotation
    put in its place; the old one stays valid until its `expires_at`. `last_used_at` may lag by a minute.
    """

    key: Key
    prefix: str
    state: KeyState
    note: str
    revoked_at: datetime | None
    replaced_by: str | None
    last_used_at: datetime | None


def state_of(key: Key, *, revoked_at: datetime | None, now: datetime) -> KeyState:
    """How a key stands; one that was revoked stays so when its term is over."""
    if revoked_at is not None:
        return "revoked"
    return "expired" if key.has_ended(now) else "valid"
