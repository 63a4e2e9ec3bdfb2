"""What is stored of a series in which each step holds until the next: only where something is another than before. Pure."""

from collections.abc import Mapping
from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def steps_between(before: Mapping[KeyT, ValueT | None], now: Mapping[KeyT, ValueT | None]) -> dict[KeyT, ValueT | None]:
    """What is another now than before, with its value now; None where there is none any more."""
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in now}
