"""Results that are kept while there is room for them."""

from typing import TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT, *, most: int) -> ValueT:
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value
    return value
