"""What a building may touch: its Site, and the two parameters that hand it and the caller to a tool."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic

import httpx
from fastmcp.exceptions import ToolError
from starlette.types import Scope
from typing_extensions import TypeVar

from campus.caller import Caller
from campus.directory import Directory
from campus.keys.building_keys import BuildingKeys
from campus.observability.metrics import Counters
from campus.outbound.callers_urls import GuardedClient
from campus.outbound.mail import Mail
from campus.storage import Storage
from twins import RequestDependency

SITE = "campus.site"
CALLER = "campus.caller"
ROUTE = "campus.route"

SettingsT = TypeVar("SettingsT", default=Any)
StateT = TypeVar("StateT", default=Any)


@dataclass(frozen=True, kw_only=True)
class Site(Generic[SettingsT, StateT]):
    """The surroundings of one building in one campus; tests make their own, nothing is patched.

    `feeds` is for the operator's URLs (https, http and file), `web` for those that callers name, guarded; `mail` sends e-mail,
    None where campus.toml has no [mail]. `url` is the campus's public address, `keys` looks keys up, and sells them where
    campus.toml grants it; `directory` tells what is open and at what price. `elapsed` counts seconds from any beginning, and no
    setting of the machine's clock changes it.
    """

    name: str
    url: str
    settings: SettingsT
    state: StateT
    storage: Storage
    feeds: httpx.AsyncClient
    web: GuardedClient
    mail: Mail | None
    keys: BuildingKeys
    directory: Directory
    log: logging.Logger
    clock: Callable[[], datetime]
    elapsed: Callable[[], float]
    counters: Counters
    alone: bool = False
    """Whether no other process serves this data, nor can: on SQLite, in the server."""

    def now(self) -> datetime:
        """The time, aware, in UTC."""
        return self.clock()

    def count(self, event: str, times: int = 1, /, **labels: str) -> None:
        """Count an event, once or so many times, for /metrics on the operator's listener; labels take few values each."""
        self.counters.add(self.name, event, labels, times=times)


class _CurrentSite(RequestDependency[Site[Any, Any]]):
    """The Site of the building whose tool is called."""

    def from_scope(self, scope: Scope) -> Site[Any, Any]:
        site = scope.get(SITE)
        if site is None:
            return self.without_request()
        assert isinstance(site, Site)
        return site

    def without_request(self) -> Site[Any, Any]:
        raise ToolError("This tool needs a campus around it: name its building in a campus.toml and run `campus serve`.")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a direct call wants its site=: there is no {name} without one")


class _CurrentCaller(RequestDependency[Caller]):
    """Who calls."""

    def from_scope(self, scope: Scope) -> Caller:
        caller = scope.get(CALLER)
        return caller if isinstance(caller, Caller) else self.without_request()

    def without_request(self) -> Caller:
        return Caller(key=None, payer=None, frame="mcp", address="")


def CurrentSite() -> Any:
    """The Site, as the default of a tool's parameter: `site: Site = CurrentSite()`."""
    return _CurrentSite()


def CurrentCaller() -> Any:
    """Who calls, as the default of a tool's parameter; `.key` is set only when it is valid for this building."""
    return _CurrentCaller()
