"""How a tool declares its HTTP route: plain data in the tool's meta, and how that data is read and checked."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pkgutil import resolve_name
from typing import Any

from fastmcp.tools import Tool
from starlette.types import Receive, Scope

from twins.fastmcp import api_method

ROUTE_META = "twins"
"""The key of a tool's meta under which its route is declared."""
BODY_LIMIT = 64 * 1024  # The bytes that a request's body may have, unless its tool declares another limit.
WITHOUT_BODY = (204, 205)
USUAL: tuple[object, ...] = ({}, [], None, 200)  # Values that a route's declaration leaves out.
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
PLACEHOLDER = re.compile(r"\{(\w+)\}")
IN_A_PATH = r"A-Za-z0-9._~!$&'()*+,;=:@-"
NOT_IN_A_PATH = re.compile(rf"[^/{IN_A_PATH}]")
Reader = Callable[[Scope, Receive], Awaitable[dict[str, Any]]]
"""Returns the arguments of a request, but for those in its path; it may raise a Problem."""
PATH = re.compile(rf"(/([{IN_A_PATH}]|\{{[A-Za-z_]\w*\}})*)+")


@dataclass(frozen=True)
class Route:
    """Where a tool is served, as `route` declares it: methods in declared order, and a path with {placeholders}.

    `query` has the name in the query string of each argument that has another one there; `reads` is the name of a function.
    """

    methods: tuple[str, ...]
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    cache: str | None = None
    lenient: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    body: str | None = None
    body_limit: int | None = None
    whole_limit: int | None = None
    reads: str | None = None
    also: tuple[tuple[tuple[str, ...], str], ...] = ()

    @cached_property
    def reader(self) -> Reader | None:
        """What reads the arguments of requests in place of the rules of twins."""
        found: Reader | None = None if self.reads is None else resolve_name(self.reads)
        return found

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
    body: str | None = None,
    body_limit: int | None = None,
    whole_limit: int | None = None,
    reads: Reader | None = None,
    also: Sequence[str] = (),
) -> dict[str, Any]:
    """A tool's HTTP route, for its meta: `@mcp.tool(meta=route("GET|POST /v1/beat/{id}", query={"secret": "s"}))`.

    A path without a method is served by GET if the tool is annotated readOnlyHint, by POST otherwise. `status` is the status of
    an answer, from 200 to 299 but not 204 or 205, since it has a body. `cache` is the Cache-Control value of an answer that
    others may store; such an answer has a strong ETag, and If-None-Match is answered with 304. Without `cache` an answer is
    `private, no-store`. HEAD is served together with GET if the tool is annotated readOnlyHint. `lenient` lists arguments whose
    value may be one that cannot be stored (a NUL character, NaN): the tool decides itself, by `unstorable_reason(value)`.
    `any_of` lists arguments of which a body must contain at least one: the OpenAPI document says so, the tool
    itself checks it. `body` names a text argument: a request whose body is not application/json, or JSON without any of the
    tool's arguments, sends the whole body as this argument: as bytes if it is no text or has more than `body_limit` bytes. Such a body
    may have `whole_limit` bytes, over HTTP and where a gate lets the caller send so much; a tool that declares it takes bytes.
    `body_limit` is the bytes that the body of a request may have, over
    HTTP and MCP (usually 65,536): declare more where an argument is large, and count the bytes that JSON adds to it, such as the
    backslash before a quotation mark. `reads` is a function of a module that reads requests in place of the rules for query and body, for
    a tool that takes what other programs send as they send it; then it may be served at the routes of `also` too, which no document
    lists, with HEAD and with placeholders that are none of its arguments: `async def read(scope, receive)` returns the arguments.
    """
    declared = {
        "query": dict(query or {}),
        "status": status,
        "cache": cache,
        "lenient": list(lenient),
        "any_of": list(any_of),
        "body": body,
        "body_limit": body_limit,
        "whole_limit": whole_limit,
        "reads": f"{reads.__module__}:{reads.__qualname__}" if reads else None,
        "also": list(also),
    }
    return {ROUTE_META: {"route": spec} | {name: value for name, value in declared.items() if value not in USUAL}}


def route_of(tool: Tool, *, default_prefix: str) -> Route:
    """The route in a tool's meta, or `{default_prefix}/<tool>` if there is none, with a dash for each character that no path holds.

    Raises ValueError, with a sentence that names the tool, if the route cannot be served.
    """
    declared = dict((tool.meta or {}).get(ROUTE_META) or {})
    spec = declared.pop("route", f"{default_prefix}/{NOT_IN_A_PATH.sub('-', tool.name)}")
    try:
        methods, path = _methods_and_path(spec, by_default="GET" if is_read_only(tool) else "POST")
        _check_status(declared.get("status", 200))
        _check_body_limit(declared.get("body_limit"))
        _check_body_limit(declared.get("whole_limit"))
        declared |= {name: tuple(declared.get(name, ())) for name in ("lenient", "any_of")}
        declared["also"] = tuple(_methods_and_path(each, by_default="GET", more=("HEAD",)) for each in declared.get("also", ()))
        return Route(methods, path, **declared)
    except (TypeError, ValueError) as error:
        raise ValueError(f"tool {tool.name!r}: {error}") from error


def is_read_only(tool: Tool) -> bool:
    """True if the tool is annotated readOnlyHint, or is the GET operation of an API and says nothing else."""
    annotated = tool.annotations.read_only_hint if tool.annotations else None
    return api_method(tool) == "GET" if annotated is None else annotated


def _methods_and_path(spec: str, *, by_default: str, more: Sequence[str] = ()) -> tuple[tuple[str, ...], str]:
    words = spec.split()
    if len(words) == 1:
        words.insert(0, by_default)
    if len(words) != 2:
        raise ValueError(f'the route {spec!r} cannot be read; write "/path", "GET /path" or "GET|POST /path"')
    methods = tuple(words[0].split("|"))
    _check_methods([each for each in methods if each not in more], spec)
    _check_path(words[1])
    return methods, words[1]


def _check_methods(methods: Sequence[str], spec: str) -> None:
    for method in methods:
        if method in ("HEAD", "OPTIONS"):
            raise ValueError(
                f"leave {method} out of the route {spec!r}: HEAD is served with GET for a read-only tool, OPTIONS for every path"
            )
        if method not in METHODS:
            raise ValueError(f"{method!r} in the route {spec!r} is not a method; the methods are: {', '.join(METHODS)}")
    if len(set(methods)) != len(methods):
        raise ValueError(f"the route {spec!r} names a method twice")


def _check_status(status: object) -> None:
    if type(status) is not int or not 200 <= status <= 299 or status in WITHOUT_BODY:
        raise ValueError(f"the status {status!r} cannot be that of an answer with a body; use one from 200 to 299, but not 204 or 205")


def _check_body_limit(limit: object) -> None:
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"the body limit {limit!r} is not a number of bytes")


def _check_path(path: str) -> None:
    if not PATH.fullmatch(path):
        raise ValueError(f"the path {path!r} cannot be served; start it with a slash, and write a placeholder as {{name}}")
    names = PLACEHOLDER.findall(path)
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"the path {path!r} has the placeholder {{{twice.pop()}}} twice")
