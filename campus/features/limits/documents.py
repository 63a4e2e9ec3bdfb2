"""What OpenAPI documents say of the limits: 429, and the headers that tell how many calls are left."""

from collections.abc import Mapping, Sequence
from typing import Any

from campus.catalog.parts import PlanPart
from campus.catalog.server import OpenBuilding
from campus.config import Config
from campus.features.limits.feature import LimitsTable
from campus.features.limits.step import COUNTED, Kind, Limit, own_buckets
from campus.pricing import Offer
from campus.problems import EXPLAINED_AT
from twins import Operation, problem_response

LEFT = "Calls that are left (r) of each limit that counts them, and the seconds until all are left again (t)."
POLICY = "Calls (q) that each limit allows within a window of so many seconds (w)."
HEADERS = {
    "RateLimit": {"description": LEFT, "schema": {"type": "string"}, "example": '"free";r=599;t=1'},
    "RateLimit-Policy": {"description": POLICY, "schema": {"type": "string"}, "example": '"free";q=600;w=60'},
}
SENT = {name: {"$ref": f"#/components/headers/{name}"} for name in HEADERS}
WAIT_SECONDS = 5  # of the example


class LimitsPlan(PlanPart):
    """The part of one plan."""

    components: Mapping[str, Mapping[str, Any]] = {"headers": HEADERS}

    def __init__(self, config: Config, settings: LimitsTable, opened: Sequence[OpenBuilding]) -> None:
        calls = {kind: number for kind in COUNTED if (number := getattr(settings, kind)) != "off"}
        self._limits = {kind: Limit(kind, number, own_buckets(kind, number)) for kind, number in calls.items()}

    def responses(self, operation: Operation, offer: Offer) -> Mapping[str, Any]:
        """429 of the limits that count calls of the tool, and the headers of all."""
        kinds: Sequence[Kind] = ("free", "building") if offer.access.is_free else ("keyed", "unpaid", "building")
        reached = [limit.reached(WAIT_SECONDS) for kind in kinds if (limit := self._limits.get(kind))]
        if not (reached and offer.access.is_limited):
            return {}
        refused = problem_response("More calls than are answered; nothing was done or charged.", *reached[:1], types=EXPLAINED_AT)
        return {str(operation.status): {"headers": SENT}, "429": refused | {"headers": refused["headers"] | SENT}}
