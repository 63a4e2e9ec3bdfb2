"""How a tool says its HTTP route: plain data in the tool's meta, and how that data is read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fastmcp.tools import Tool

KEY = "twins"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
PATH = re.compile(r"(/([A-Za-z0-9._~!$&'()*+,;=:@-]|\{[A-Za-z_]\w*\})*)+")


@dataclass(frozen=True)
class Route:
    """Where a tool is served: methods in the order said, a path with {placeholders}, and what its answer looks like.

    `query` renames arguments for the query string (argument → name there). `cache` is the Cache-Control value of
    an answer that may be kept by others, None where it may not. `lenient` names arguments of which a value that
    cannot be stored does not refuse the call. `any_of` names arguments of which a call wants one.
    """

    methods: tuple[str, ...]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    cache: str | None = None
    lenient: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()

    @cached_property
    def placeholders(self) -> tuple[str, ...]:
        return tuple(PLACEHOLDER.findall(self.path))


def route(
    spec: str,
    *,
    query: Mapping[str, str] | None = None,
    status: int = 200,
    cache: str | None = None,
    lenient: Sequence[str] = (),
    any_of: Sequence[str] = (),
) -> dict[str, Any]:
    """A tool's HTTP route, for its meta: `@mcp.tool(meta=route("GET|POST /v1/beat/{id}", query={"secret": "s"}))`.

    A path alone is served by GET where the tool is annotated readOnlyHint, by POST otherwise. `status` is that of
    an answer. `cache` is the Cache-Control value of an answer that may be kept; it also brings a strong ETag and
    304 answers to If-None-Match. Without it an answer is `private, no-store`. HEAD is served beside GET where the tool
    is annotated readOnlyHint. `lenient` names arguments whose value may be one that cannot be stored (a NUL character,
    NaN): the tool is called all the same, with Unstorable(reason) in its place, and says itself what it makes of it.
    `any_of` names arguments of which a call in a body must bring at least one: the OpenAPI document says so, and the
    tool refuses a call without.
    """
    said: dict[str, Any] = {"route": spec}
    if query:
        said["query"] = dict(query)
    if status != 200:
        said["status"] = status
    if cache is not None:
        said["cache"] = cache
    if lenient:
        said["lenient"] = list(lenient)
    if any_of:
        said["any_of"] = list(any_of)
    return {KEY: said}


def route_of(tool: Tool, *, default_prefix: str) -> Route:
    """The route that a tool says in its meta, or `{default_prefix}/<tool>` for one that says none.

    Raises ValueError with a sentence that names the tool where what it says cannot be served.
    """
    said = dict((tool.meta or {}).get(KEY) or {})
    spec = said.pop("route", f"{default_prefix}/{tool.name}")
    try:
        methods, path = _methods_and_path(spec, by_default="GET" if reads_only(tool) else "POST")
        said |= {name: tuple(said.get(name, ())) for name in ("lenient", "any_of")}
        return Route(methods, path, **said)
    except (TypeError, ValueError) as error:
        raise ValueError(f"tool {tool.name!r}: {error}") from error


def reads_only(tool: Tool) -> bool:
    """Whether a tool is annotated to change nothing."""
    return bool(tool.annotations and tool.annotations.read_only_hint)


def _methods_and_path(spec: str, *, by_default: str) -> tuple[tuple[str, ...], str]:
    words = spec.split()
    if len(words) == 1:
        words.insert(0, by_default)
    if len(words) != 2:
        raise ValueError(f'the route {spec!r} cannot be read; it is "/path", "GET /path" or "GET|POST /path"')
    methods = tuple(words[0].split("|"))
    _check_methods(methods, spec)
    _check_path(words[1])
    return methods, words[1]


def _check_methods(methods: tuple[str, ...], spec: str) -> None:
    for method in methods:
        if method in ("HEAD", "OPTIONS"):
            raise ValueError(
                f"{method} in the route {spec!r} is served without being said: HEAD with every GET that only reads, OPTIONS everywhere"
            )
        if method not in METHODS:
            raise ValueError(f"{method!r} in the route {spec!r} is no method; there are: {', '.join(METHODS)}")
    if len(set(methods)) != len(methods):
        raise ValueError(f"the route {spec!r} names a method twice")


def _check_path(path: str) -> None:
    if not PATH.fullmatch(path):
        raise ValueError(f"the path {path!r} cannot be served; it starts with a slash, and a placeholder is written {{name}}")
    names = PLACEHOLDER.findall(path)
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"the path {path!r} has the placeholder {{{twice.pop()}}} twice")
