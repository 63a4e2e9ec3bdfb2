"""What features add to HTTP: routes, layers around the app, and the operator's listener; a Building names its class as `http`."""

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import Any

from starlette.types import ASGIApp

from campus.app import Campus
from campus.catalog.plan import Plan
from campus.installed import installed_features
from campus.pages.keys import SignInLimit
from twins import RouteEntry


class HttpPart:
    """Base of it: it overrides what it adds. `is_wanted` says by campus.toml whether this campus has it."""

    links: str = ""
    """The Link header of every page."""
    notices: bool = False
    """Whether its routes show the tools of buildings: then changed ones are listed anew before one answers."""
    more_urls: Collection[str] = ()
    """Further addresses that are served."""

    def __init__(self, campus: Campus, sign_ins: SignInLimit) -> None:
        self.campus = campus
        self.sign_ins = sign_ins

    @classmethod
    def is_wanted(cls, plan: Plan) -> bool:
        """Whether it is opened."""
        return True

    def routes(self, plan: Plan, servers: Mapping[str, ASGIApp]) -> Collection[RouteEntry]:
        """Its routes for the buildings that are open now; `servers` are their MCP apps by path."""
        return ()

    def around(self, app: ASGIApp) -> ASGIApp:
        """The app of the service, or one before it."""
        return app

    def operators(self) -> dict[str, Any]:
        """What it adds to the operator's listener: arguments of `admin_app`."""
        return {}


def opened_features(campus: Campus, sign_ins: SignInLimit) -> Iterator[HttpPart]:
    """Those that this campus has."""
    for feature in installed_features().values():
        if feature.http is None:
            continue
        module, _, attribute = feature.http.partition(":")
        found: type[HttpPart] = getattr(import_module(module), attribute)
        if found.is_wanted(campus.plan):
            yield found(campus, sign_ins)
