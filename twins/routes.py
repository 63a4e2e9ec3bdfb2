"""Which path leads where: literal paths from a dict, then patterns, the most particular first."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp

from twins.annotation import PLACEHOLDER
from twins.endpoint import Methods
from twins.problems import NO_TYPE


@dataclass(frozen=True)
class RouteEntry:
    """One thing served: its methods, its path with {placeholders}, its ASGI app, and its name in sentences."""

    methods: tuple[str, ...]
    path: str
    app: ASGIApp
    name: str


class RouteTable:
    """Paths and where they lead. Raises ValueError where two entries claim one route."""

    def __init__(self, entries: Iterable[RouteEntry] = (), *, problem_types: str = NO_TYPE) -> None:
        self.entries = tuple(entries)
        self.problem_types = problem_types
        self._literal: dict[str, Methods] = {}
        self._patterns: dict[int, list[tuple[re.Pattern[str], Methods]]] = {}  # by slashes: a placeholder holds none
        for path, group in _by_path(self.entries).items():
            endpoint = Methods(path, _apps(group), problem_types)
            if PLACEHOLDER.search(path):
                self._patterns.setdefault(path.count("/"), []).append((_pattern(path), endpoint))
            else:
                self._literal[path] = endpoint

    def find(self, path: str) -> tuple[Methods, dict[str, str]] | None:
        """The ASGI endpoint of a decoded path, and the texts of its placeholders; None where nothing is served.

        The caller puts the texts into `scope["path_params"]` before it calls the endpoint.
        """
        if endpoint := self._literal.get(path):
            return endpoint, {}
        for pattern, endpoint in self._patterns.get(path.count("/"), ()):
            if match := pattern.fullmatch(path):
                return endpoint, match.groupdict()
        return None

    @classmethod
    def merged(cls, tables: Iterable["RouteTable"]) -> "RouteTable":
        """One table of all entries; problems of no method are explained where the first table's are."""
        all_tables = list(tables)
        types = all_tables[0].problem_types if all_tables else NO_TYPE
        return cls((entry for table in all_tables for entry in table.entries), problem_types=types)


def _by_path(entries: Iterable[RouteEntry]) -> dict[str, list[RouteEntry]]:
    """Entries by path, the most particular path first: a literal part goes before a placeholder at the same place."""
    grouped: dict[str, list[RouteEntry]] = {}
    spelled: dict[str, str] = {}
    for entry in sorted(entries, key=lambda entry: _particularity(entry.path)):
        path = spelled.setdefault(PLACEHOLDER.sub("{}", entry.path), entry.path)
        if path != entry.path:
            first = grouped[path][0]
            raise ValueError(f"{first.name} and {entry.name} name the placeholders of one path differently: {path} and {entry.path}")
        grouped.setdefault(path, []).append(entry)
    return grouped


def _apps(entries: Iterable[RouteEntry]) -> dict[str, ASGIApp]:
    taken: dict[str, RouteEntry] = {}
    for entry in entries:
        for method in entry.methods:
            if method in taken:
                raise ValueError(f"{taken[method].name} and {entry.name} are both served at {method} {entry.path}; give one another route")
            taken[method] = entry
    return {method: entry.app for method, entry in taken.items()}


def _particularity(path: str) -> list[tuple[bool, int]]:
    return [("{" in part, -len(PLACEHOLDER.sub("", part))) for part in path.split("/")]


def _pattern(path: str) -> re.Pattern[str]:
    """A path as an expression: a placeholder is any text without a slash, at least one character."""
    literals = PLACEHOLDER.split(path)
    parts = [re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+)" for index, part in enumerate(literals)]
    return re.compile("".join(parts))
