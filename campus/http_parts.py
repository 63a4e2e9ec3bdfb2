"""What a feature or a building adds to HTTP: routes, layers around the app, and the operator's listener."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from campus.app import Campus
from campus.catalog.loader import error_with_place
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding
from campus.errors import CampusError, LoadError
from campus.installed import OpenFeature
from campus.layout.renderer import Link
from campus.paywall.gate import Gate
from campus.site import Site
from campus.steps import Entry
from campus.visitors import Visitors
from twins import ArgumentChecker, RouteEntry


class HttpPart:
    """Base of what Building(http=…) makes, once for the service and once for the operator's listener: it overrides what it adds."""

    links: str = ""  # The Link header of every page.
    notices: bool = False  # Whether its routes show the tools of buildings: then changed ones are listed anew before one answers.
    more_urls: Collection[str] = ()  # Further addresses that are served.
    places: Mapping[str, str] = {}  # Where all pages lead, by what is there: documentation, prices, sign_in, tools, or one tool.
    navigation: Sequence[Link] = ()  # Its entries in the navigation of every page.

    def __init__(self, campus: Campus, site: Site[Any, Any]) -> None:
        self.campus = campus
        self.site = site
        self.directory = campus.plan.directory
        self.visitors: Visitors = site.visitors
        assert site.pages is not None
        self.pages = site.pages

    async def run(self) -> None:
        """Work that goes on while it serves; it is cancelled at the end."""

    def prepare(self, opened: OpenBuilding) -> None:
        """Called before a building's server starts."""

    def entry(self, opened: OpenBuilding, gate: Gate, checkers: Mapping[str, ArgumentChecker]) -> Entry | None:
        """What takes some of a building's calls before its gate."""
        return None

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        """Its routes for the buildings that are open now; `servers` are their MCP apps by path."""
        return ()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The app of the service, or one before it."""
        return app

    def outermost(self, app: ASGIApp) -> AbstractContextManager[ASGIApp]:
        """The app with the edge around it, or one before that, while it is served."""
        return nullcontext(app)

    def operators(self) -> dict[str, Any]:
        """What it adds to the operator's listener: arguments of `admin_app`."""
        return {}


def http_parts(campus: Campus, visitors: Visitors | None = None) -> list[HttpPart]:
    """Those of this campus, also of features that are opened without a table; on the operator's listener nobody is a visitor."""
    parts: list[OpenFeature | OpenBuilding] = [*campus.features, *campus.plan.opened]
    return [_made(campus, one.name, http, visitors) for one in parts if (http := one.loaded.building.http) is not None]


def _made(campus: Campus, name: str, http: Callable[..., Any], visitors: Visitors | None) -> HttpPart:
    try:
        made = http(campus, replace(campus.sites[name], visitors=visitors))
    except CampusError:
        raise
    except Exception as error:  # an author's code may raise anything
        raise LoadError(f"{name!r} cannot make what it adds to HTTP: {error_with_place(error)}") from error
    if not isinstance(made, HttpPart):
        raise LoadError(f"{name!r}: http= makes {made!r}; it takes a subclass of campus.http_parts.HttpPart")
    return made
