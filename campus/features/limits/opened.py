"""The limits of one process, and on a database that others use too, of all that serve; and what OpenAPI documents say of them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from campus.building import Building, Job, Service
from campus.catalog.parts import FeatureSite, PlanPart
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.features.limits.feature import LimitsTable
from campus.features.limits.shared import SharedLimits
from campus.features.limits.step import COUNTED, CallLimits, Kind, Limit, own_buckets
from campus.pricing import Offer
from campus.problems import EXPLAINED_AT
from twins import Operation, problem_response

FORGOTTEN_EVERY = timedelta(minutes=10)
LEFT = "Calls that are left (r) of each limit that counts them, and the seconds until all are left again (t)."
POLICY = "Calls (q) that each limit allows within a window of so many seconds (w)."
HEADERS = {
    "RateLimit": {"description": LEFT, "schema": {"type": "string"}, "example": '"free";r=599;t=1'},
    "RateLimit-Policy": {"description": POLICY, "schema": {"type": "string"}, "example": '"free";q=600;w=60'},
}
SENT = {name: {"$ref": f"#/components/headers/{name}"} for name in HEADERS}
WAIT_SECONDS = 5  # of the example


def calls_of(settings: LimitsTable) -> Mapping[Kind, int]:
    """How many calls a minute there may be, of each kind that is limited."""
    return {kind: number for kind in COUNTED if (number := getattr(settings, kind)) != "off"}


class LimitsPlan(PlanPart):
    """The part of one plan."""

    components: Mapping[str, Mapping[str, Any]] = {"headers": HEADERS}

    def __init__(self, config: Config, settings: LimitsTable, opened: Sequence[OpenBuilding]) -> None:
        self._limits = {kind: Limit(kind, number, own_buckets(kind, number)) for kind, number in calls_of(settings).items()}

    def responses(self, operation: Operation, offer: Offer) -> Mapping[str, Any]:
        """429 of the limits that count calls of the tool, and the headers of all."""
        kinds: Sequence[Kind] = ("free", "building") if offer.access.is_free else ("keyed", "unpaid", "building")
        reached = [limit.reached(WAIT_SECONDS) for kind in kinds if (limit := self._limits.get(kind))]
        if not (reached and offer.access.is_limited):
            return {}
        refused = problem_response("More calls than are answered; nothing was done or charged.", *reached[:1], types=EXPLAINED_AT)
        return {str(operation.status): {"headers": SENT}, "429": refused | {"headers": refused["headers"] | SENT}}


class Limits(NamedTuple):
    step: CallLimits
    shared: SharedLimits | None


def opened(site: FeatureSite[LimitsTable]) -> Limits:
    shared = SharedLimits(site.storage, elapsed=site.elapsed) if site.shares else None
    buckets = shared.buckets if shared else own_buckets
    return Limits(CallLimits(calls_of(site.settings), elapsed=site.elapsed, metrics=site.metrics, buckets=buckets), shared)


async def share_limits(site: FeatureSite[LimitsTable, Limits]) -> None:
    assert site.state.shared is not None
    await site.state.shared.run()


async def forget_limits(site: FeatureSite[LimitsTable, Limits]) -> bool:
    if site.state.shared is not None:
        await site.state.shared.forget()
    return site.state.shared is not None


building = Building(
    state=opened,
    plans=LimitsPlan,
    steps=lambda site: [site.state.step],
    services=[Service(share_limits, shared=True)],
    jobs=[Job(forget_limits, every=FORGOTTEN_EVERY, shared=True)],
)
