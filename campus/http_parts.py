"""What a feature or a building adds to HTTP: routes, layers around the app, and the operator's listener."""

from collections.abc import Collection, Mapping
from typing import Any

from starlette.types import ASGIApp

from campus.app import Campus
from campus.catalog.plan import Plan
from campus.catalog.server import OpenBuilding
from campus.installed import OpenFeature
from campus.paywall.gate import Gate
from campus.site import Site
from campus.steps import Entry
from twins import ArgumentChecker, RouteEntry


class HttpPart:
    """Base of what Building(http=…) makes, once for each process that serves: it overrides what it adds."""

    links: str = ""
    """The Link header of every page."""
    notices: bool = False
    """Whether its routes show the tools of buildings: then changed ones are listed anew before one answers."""
    more_urls: Collection[str] = ()
    """Further addresses that are served."""

    visitors: Any = None
    """The visitors of pages; set before its routes are asked for."""

    def __init__(self, campus: Campus, site: Site[Any, Any]) -> None:
        self.campus = campus
        self.site = site

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

    def operators(self) -> dict[str, Any]:
        """What it adds to the operator's listener: arguments of `admin_app`."""
        return {}


def http_parts(campus: Campus) -> list[HttpPart]:
    """Those of this campus, also of features that are opened without a table of theirs."""
    parts: list[OpenFeature | OpenBuilding] = [*campus.features, *campus.plan.opened]
    return [http(campus, campus.sites[one.name]) for one in parts if (http := one.loaded.building.http) is not None]
