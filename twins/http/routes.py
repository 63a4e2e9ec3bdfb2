"""The table of routes, an ASGI app: literal paths from a dict, then patterns, the most specific first; and the methods of one path."""

import re
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from twins.http.responses import Answer, problem_answer, raw_headers, send_answer
from twins.problems import NO_TYPE, Problem
from twins.tool.annotation import PLACEHOLDER

ANY = "*"
"""Stands for every method, of an app that answers them all itself."""


@dataclass(frozen=True)
class RouteEntry:
    """One route: its methods (or ANY), its path with {placeholders}, its ASGI app, and its name in error messages."""

    methods: tuple[str, ...]
    path: str
    app: ASGIApp
    name: str


@dataclass(frozen=True)
class MethodTable:
    """One path as an ASGI app: the app of each method, OPTIONS, and 405 for the rest."""

    path: str
    apps: Mapping[str, ASGIApp]
    problem_types: str = NO_TYPE

    @property
    def allowed(self) -> str:
        """The Allow header."""
        return ", ".join([*self.apps, "OPTIONS"])

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Not a coroutine itself: that saves one per call."""
        app = self.apps.get(scope["method"]) or self.apps.get(ANY)
        if app is not None:
            return app(scope, receive, send)
        return send_answer(send, self._without_app(scope), with_body=scope["method"] != "HEAD")

    def _without_app(self, scope: Scope) -> Answer:
        headers = {"Allow": self.allowed}
        if scope["method"] == "OPTIONS":
            return Answer(204, b"", raw_headers(headers))
        problem = Problem(405, "method_not_allowed", f"this path takes {self.allowed}", headers=headers)
        return problem_answer(problem, types=self.problem_types, request_id=scope.get("request_id"))


class RouteTable:
    """Paths and their endpoints. Raises ValueError if two entries use one route. `missing` answers at every other path."""

    def __init__(self, entries: Iterable[RouteEntry] = (), *, problem_types: str = NO_TYPE, missing: ASGIApp | None = None) -> None:
        self.entries = tuple(entries)
        self.problem_types = problem_types
        self._missing = missing or self._nothing
        self._literal: dict[str, MethodTable] = {}
        # by number of slashes, since a placeholder matches none; and with its beginning, which is compared first, at a fifth of the cost
        self._patterns: dict[int, list[tuple[str, re.Pattern[str], MethodTable]]] = {}
        for path, group in _by_path(self.entries).items():
            endpoint = MethodTable(path, _apps(group), problem_types)
            if PLACEHOLDER.search(path):
                begins = PLACEHOLDER.split(path, maxsplit=1)[0]
                self._patterns.setdefault(path.count("/"), []).append((begins, _pattern(path), endpoint))
            else:
                self._literal[path] = endpoint

    def find(self, path: str) -> tuple[MethodTable, dict[str, str]] | None:
        """The ASGI endpoint of a decoded path, and the texts of its placeholders; None if no route has this path.

        The caller puts the texts into `scope["path_params"]` before it calls the endpoint.
        """
        if endpoint := self._literal.get(path):
            return endpoint, {}
        for begins, pattern, endpoint in self._patterns.get(path.count("/"), ()):
            if path.startswith(begins) and (match := pattern.fullmatch(path)):
                return endpoint, match.groupdict()
        return None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass the request on to its endpoint. Not a coroutine itself: that saves one per call."""
        found = self.find(scope["path"])
        if found is None:
            return self._missing(scope, receive, send)
        endpoint, scope["path_params"] = found
        return endpoint(scope, receive, send)

    async def _nothing(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = Problem(404, "not_found", "there is nothing at this address")
        answer = problem_answer(problem, types=self.problem_types, request_id=scope.get("request_id"))
        await send_answer(send, answer, with_body=scope["method"] != "HEAD")


def _by_path(entries: Iterable[RouteEntry]) -> dict[str, list[RouteEntry]]:
    """Entries by path, the most specific path first: a literal part goes before a placeholder at the same place."""
    grouped: dict[str, list[RouteEntry]] = {}
    first_spelling: dict[str, str] = {}
    for entry in sorted(entries, key=lambda entry: _specificity(entry.path)):
        path = first_spelling.setdefault(PLACEHOLDER.sub("{}", entry.path), entry.path)
        if path != entry.path:
            first = grouped[path][0]
            raise ValueError(
                f"{first.name} and {entry.name} have one path with different placeholder names, {path} and {entry.path}; use the same names"
            )
        grouped.setdefault(path, []).append(entry)
    return grouped


def _apps(entries: Iterable[RouteEntry]) -> dict[str, ASGIApp]:
    taken: dict[str, RouteEntry] = {}
    for entry in entries:
        for method in entry.methods:
            if other := taken.get(method) or taken.get(ANY) or (method == ANY and next(iter(taken.values()), None)):
                both = f"{other.name} and {entry.name}"
                shared = next(iter(other.methods)) if method == ANY else method
                raise ValueError(f'route "{shared} {entry.path}" is used by {both}; give one of them a different route')
            taken[method] = entry
    return {method: entry.app for method, entry in taken.items()}


def _specificity(path: str) -> list[tuple[bool, int]]:
    return [("{" in part, -len(PLACEHOLDER.sub("", part))) for part in path.split("/")]


def _pattern(path: str) -> re.Pattern[str]:
    literals = PLACEHOLDER.split(path)
    parts = [re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+)" for index, part in enumerate(literals)]
    return re.compile("".join(parts))
