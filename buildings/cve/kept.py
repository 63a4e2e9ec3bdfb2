"""Results that are kept while there is room for them, and shorter forms of results."""

from typing import Any, Protocol, TypeVar

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")
SHORTER_KEPT = 32


class CanBeCut(Protocol):
    def cut(self, limit: int, /, *, methodology: bool) -> Any: ...


ListT = TypeVar("ListT", bound=CanBeCut)


class ShorterForms:
    """The results as callers asked for them, each made once: what is returned again as the same object is not written as JSON again."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, bool], tuple[Any, Any]] = {}  # by the identity of the whole, which is kept too

    def of(self, whole: ListT, limit: int, *, methodology: bool) -> ListT:
        wanted = id(whole), limit, methodology
        found = self._kept.get(wanted) or keep(self._kept, wanted, (whole, whole.cut(limit, methodology=methodology)), most=SHORTER_KEPT)
        shorter: ListT = found[1]
        return shorter


def keep(kept: dict[KeyT, ValueT], key: KeyT, value: ValueT, *, most: int) -> ValueT:
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[key] = value
    return value
