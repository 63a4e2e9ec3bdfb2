"""The limits of one process, and on a database that others use too, of all that serve."""

from datetime import timedelta
from typing import NamedTuple

from campus.building import Building, Job, Service
from campus.catalog.parts import FeatureSite
from campus.features.limits.documents import LimitsPlan
from campus.features.limits.feature import LimitsTable
from campus.features.limits.shared import SharedLimits
from campus.features.limits.step import COUNTED, CallLimits, own_buckets

FORGOTTEN_EVERY = timedelta(minutes=10)


class Limits(NamedTuple):
    step: CallLimits
    shared: SharedLimits | None


def opened(site: FeatureSite[LimitsTable]) -> Limits:
    shared = SharedLimits(site.storage, elapsed=site.elapsed) if site.shares else None
    calls = {kind: number for kind in COUNTED if (number := getattr(site.settings, kind)) != "off"}
    buckets = shared.buckets if shared else own_buckets
    return Limits(CallLimits(calls, elapsed=site.elapsed, metrics=site.metrics, buckets=buckets), shared)


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
