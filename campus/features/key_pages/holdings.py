"""What a key owns that goes on after the calls that made it, of all buildings, with who made each and whether it has stopped."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from campus.building import Holding, ToolCall
from campus.caller import Key
from campus.keys.makers import Maker
from campus.paywall.admission import ALL
from campus.visitors import Visitors

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Owned:
    """A holding of one building, and its maker; `stops`: it stops with its maker."""

    building: str
    holding: Holding
    maker: Maker
    stops: bool

    def call(self, action: str) -> ToolCall | None:
        return {"end": self.holding.end, "keep": self.holding.keep}.get(action)

    @property
    def state(self) -> str:
        """`active`; `stopped` if it stopped with its maker; `unclaimed` if it goes on without."""
        return ("stopped" if self.stops else "unclaimed") if self.maker.ends_at is None else "active"

    @property
    def view(self) -> Mapping[str, object]:
        about = {name: getattr(self.holding, name) for name in ("id", "kind", "name", "made_at")}
        return {"building": self.building, **about, "made_by": self.maker.shown, "state": self.state}


async def owned_by(key: Key, visitors: Visitors) -> Sequence[Owned]:
    """What the key owns, those first whose maker has ended. A building that fails is logged and left out."""
    owned: list[Owned] = []
    for name, building in visitors.buildings.items():
        holdings = building.loaded.building.holdings
        if holdings is None or key.scope not in (building.scope, ALL):
            continue
        try:
            found = await holdings.of(visitors.sites[name], key)
        except Exception:  # a building's code may raise anything; the page shows the rest
            log.exception("holdings failed", extra={"building": name})
            continue
        makers = await visitors.keys.makers.all_of({one.made_by for one in found})
        owned += [Owned(name, one, makers[one.made_by], holdings.stop) for one in found]
    return sorted(owned, key=lambda one: one.maker.ends_at is not None)
