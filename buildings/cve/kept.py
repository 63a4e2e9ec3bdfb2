"""Results that are kept while there is room for them."""

from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT, *, most: int) -> ValueT:
    """Keep the value, instead of the oldest one if there are many."""
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value
    return value
