"""The Site: the object that gives a tool its storage, settings and clients at run time; and the parameters that supply Site and caller."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic

import anyio
import httpx
from fastmcp.exceptions import ToolError
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope
from typing_extensions import TypeVar

from campus.caller import Caller, GivenByCampus
from campus.context import context_of
from campus.directory import Directory
from campus.keys.keyring import BuildingKeys
from campus.layout.renderer import Pages
from campus.observability.metrics import Metrics
from campus.outbound.http_clients import GuardedClient
from campus.storage import Storage
from twins import RequestDependency

SettingsT = TypeVar("SettingsT", default=Any)
StateT = TypeVar("StateT", default=Any)


@dataclass(frozen=True, kw_only=True)
class Site(GivenByCampus, Generic[SettingsT, StateT]):
    """Everything that one building may use in one campus. Tests construct their own.

    `feeds` is the HTTP client for the operator's URLs (https, http and file), `web` the guarded one for URLs that callers name. `url` is
    the campus's public address. `keys` looks keys up, and sells them if campus.toml grants it. `directory` lists what is open and at
    what price. `elapsed` counts seconds, and setting the machine's clock does not change it.
    """

    name: str
    url: str
    settings: SettingsT
    state: StateT
    storage: Storage
    feeds: httpx.AsyncClient
    web: GuardedClient
    keys: BuildingKeys
    directory: Directory
    log: logging.Logger
    clock: Callable[[], datetime]
    elapsed: Callable[[], float]
    metrics: Metrics
    features: Mapping[str, Any] = field(default_factory=dict)
    """The states of the features that are open; see `feature`."""
    pages: Pages | None = None
    visitors: Any = None
    """The Visitors of a page that is asked for, which know more of campus than this module may."""
    stopping: anyio.Event = field(default_factory=anyio.Event)
    """Set when the process is about to stop: what waits or streams for long ends then."""
    alone: bool = False
    """True in the server, on SQLite: then no other process can serve this data."""
    shares: bool = False
    """True on PostgreSQL: other processes may serve the same data."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        """Site itself: Site[Options] is for type checkers, and pydantic would take it for a class of its own."""
        return cls

    def now(self) -> datetime:
        """The current time, timezone-aware, in UTC."""
        return self.clock()

    def feature(self, name: str) -> Any:
        """What a feature has for buildings, as its documentation says; None if campus.toml does not open it."""
        return self.features.get(name)

    def count(self, event: str, times: int = 1, /, **labels: str) -> None:
        """Count an event for /metrics on the operator's listener. A label must have few values."""
        self.metrics.add(self.name, event, labels, times=times)

    def page(
        self,
        template: str,
        request: Request,
        /,
        *,
        data: object = None,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **variables: Any,
    ) -> Response:
        """A page of the building: its template in campus's layout, as the request's Accept header asks for it.

        A browser receives HTML, `Accept: text/markdown` the same as Markdown, and other callers `data` as JSON if it is given. The
        template begins with `{% extends "campus/layout.html" %}` and fills the blocks title and main. A page with a form, and one that
        asked for its visitor, is stored by no cache.
        """
        return self._templates.page(template, request, data=data, status=status, headers=headers, **variables)

    def part(self, template: str, request: Request | None = None, /, **variables: Any) -> Markup:
        """A template as a part of another page, such as the start page; with the page's request if it has a form."""
        return self._templates.part(template, request, **variables)

    async def caller(self, request: Request) -> Caller:
        """The visitor of a page, as CurrentCaller() is the caller of a tool; `.key` is set only if it is valid for this building."""
        caller: Caller = await self._visitors.caller(self.name, request)
        return caller

    async def admit(self, request: Request, tool: str) -> Caller:
        """The visitor of a page, if it may call this tool of the building. Raises the tool's refusal otherwise: Problem 402 or 403."""
        caller: Caller = await self._visitors.admit(self.name, request, tool)
        return caller

    async def call(self, request: Request, tool: str, /, **arguments: Any) -> Any:
        """Call one of the building's tools for the visitor of a page, as over HTTP; returns its answer as JSON values.

        The arguments are checked and the access too: the Problem that a caller would receive is raised.
        """
        return await self._visitors.call(self.name, request, tool, arguments)

    async def written(self, request: Request, tool: str, media_type: str, /, **arguments: Any) -> bytes:
        """As `call`, with the answer as it is sent to who accepts `media_type`: one of the formats that the tool's answers have."""
        body: bytes = await self._visitors.written(self.name, request, tool, media_type, arguments)
        return body

    async def highlights(self, request: Request) -> Mapping[str, Markup]:
        """What the buildings show of themselves on the start page, by their names; those that show nothing are left out."""
        highlights: Mapping[str, Markup] = await self._visitors.highlights(request)
        return highlights

    @property
    def _visitors(self) -> Any:
        if self.visitors is None:
            raise RuntimeError(f"the site of {self.name!r} has no visitors here: only that of a page's request does")
        return self.visitors

    @property
    def _templates(self) -> Pages:
        if self.pages is None:
            raise RuntimeError(f"the building {self.name!r} has no templates here: its site was made without pages")
        return self.pages


class _CurrentSite(RequestDependency[Site[Any, Any]]):
    def from_scope(self, scope: Scope) -> Site[Any, Any]:
        return context_of(scope).site or self.without_request()

    def without_request(self) -> Site[Any, Any]:
        raise ToolError("This tool runs inside a campus only: name its building in a campus.toml and run `campus serve`.")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"pass site= when you call the tool directly: there is no {name} without a site")


class _CurrentCaller(RequestDependency[Caller]):
    def from_scope(self, scope: Scope) -> Caller:
        return context_of(scope).caller or self.without_request()

    def without_request(self) -> Caller:
        return Caller(key=None, payer=None, frame="mcp", address="")


def CurrentSite() -> Any:
    """The Site, as the default of a tool's parameter: `site: Site = CurrentSite()`."""
    return _CurrentSite()


def CurrentCaller() -> Any:
    """The Caller, as the default of a tool's parameter; `.key` is set only if it is valid for this building."""
    return _CurrentCaller()
