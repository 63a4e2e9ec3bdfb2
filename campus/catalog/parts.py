"""What a feature is given when it is opened, and what it may add to the plan."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.types import Receive, Scope, Send

from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.core import Core
from campus.directory import Directory, SellerEntry
from campus.paywall.admission import Paywall
from campus.pricing import Offer, Seller
from campus.site import SettingsT, Site, StateT
from campus.steps import Unlocks
from twins import Operation, Problem, RouteEntry


class Given(NamedTuple):
    """What a building gives to a feature, by Building(gives=…), and the building's Site."""

    what: Any
    site: Site[Any, Any]


@dataclass(frozen=True, kw_only=True)
class FeatureSite(Site[SettingsT, StateT]):
    """The Site of a feature. It has what no building is given: the campus's databases, keys, paywall and configuration.

    `storage` is campus's own, where the feature's tables are. `parts` are what features added to the plan, by their names.
    `given` is what buildings give to it, by their names, once they are open.
    """

    config: Config
    core: Core
    paywall: Paywall
    parts: Mapping[str, "PlanPart"]
    given: Mapping[str, Given]


class PlanPart:
    """What a feature adds to the plan, which is made before a database is opened, and anew when a server's tools change.

    `Building(plans=…)` makes one, by `(config, settings, opened)`, and raises ConfigError or LoadError for what cannot be served. A
    feature without one adds nothing.
    """

    seller: Seller | None = None
    """What sells calls, where they can be paid for."""
    sold_by: SellerEntry | None = None
    """Who offers the service, and where people write to them."""
    shop: str | None = None
    """Where people buy the products, and by what: a page's address, and a few words."""
    note: str | None = None
    """What is no mistake and is often overlooked: `campus check` and `campus tools` say it."""
    reads: tuple[str, ...] = ()
    """How the variables for secrets begin that it reads besides those of its feature, as campus.toml names them."""
    unlocks: Unlocks | None = None
    """Another way than keys to open a tool; see campus.steps."""
    components: Mapping[str, Mapping[str, Any]] = {}
    """Components of the OpenAPI documents, by kind (schemas, parameters, headers) and name."""

    def routes(self) -> Iterable[RouteEntry]:
        """The routes that it will serve for buildings: no tool may have one of them."""
        return ()

    def enter(self, directory: Directory) -> None:
        """Add to the directory, before the buildings' entries are made."""

    def worded(self, refusal: Problem, operation: Operation, offer: Offer) -> Problem:
        """A refusal of the paywall as it is sent over HTTP."""
        return refusal

    def responses(self, operation: Operation, offer: Offer) -> Mapping[str, Any]:
        """Further responses of a tool in OpenAPI documents, by status; they are joined to what others say of the same status."""
        return {}

    def extras(self, operation: Operation, offer: Offer) -> Mapping[str, Any]:
        """Further members of a tool's operation; its `parameters` are added to the tool's own."""
        return {}

    def paths(self, opened: OpenBuilding, *, grouped: bool) -> Mapping[str, Any]:
        """Further paths of a building in an OpenAPI document; `grouped` in that of all buildings."""
        return {}

    def documents(self) -> Mapping[str, Callable[[], dict[str, Any]]]:
        """Further documents, by path; each is made when it is first read."""
        return {}


def made_parts(config: Config, opened: Sequence[OpenBuilding]) -> dict[str, PlanPart]:
    makers = [(one, one.building.plans) for one in config.features()]
    return {one.name: plans(config, one.settings, opened) for one, plans in makers if plans is not None}


async def unserved(scope: Scope, receive: Receive, send: Send) -> None:
    """In place of an endpoint that is not open yet."""
