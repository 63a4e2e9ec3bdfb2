"""The step that counts what keys call, and refuses those that have spent their product's quota; and what stores the counts."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from campus.building import Building, Job
from campus.caller import Key, Way
from campus.catalog.parts import FeatureSite
from campus.context import Context
from campus.features.usage.counts import KeyUsage
from campus.keys.allowances import Standing
from campus.observability import utc_text
from campus.observability.metrics import Metrics
from campus.paywall.admission import Paywall
from campus.pricing import Offer
from campus.steps import GatedCall, Step
from twins import Problem

QUOTA = "quota"  # Its name among the limits of a call.
FLUSH = timedelta(seconds=10)  # What a crash may lose.


class Quotas(Step):
    """What keys call. It follows the limits: what they refuse does not count."""

    name = "quota"
    after = ("limits",)

    def __init__(self, usage: KeyUsage, paywall: Paywall, metrics: Metrics) -> None:
        self._usage = usage
        self._paywall = paywall
        self._metrics = metrics.calls

    def admitted(self, call: GatedCall[Any], offer: Offer, context: Context, key: Key | None) -> Awaitable[None] | None:
        if key is None:
            return None
        is_opened = context.caller is not None and context.caller.key is not None
        if is_opened and self._usage.has_quota(key):
            return self._spend(call, offer, key, context)
        self._usage.count(key, context.site.name, call.tool, is_opened=is_opened)
        return None

    async def _spend(self, call: GatedCall[Any], offer: Offer, key: Key, context: Context) -> None:
        await call.canonical()  # arguments that are not valid take nothing of it
        standing = await self._usage.standing(key)
        if is_spent := standing.left == 0:
            self._metrics.refused(QUOTA)
        else:
            self._usage.count(key, context.site.name, call.tool, standing=standing, is_opened=True)
        show_quota(standing, context)
        if is_spent:
            raise self._used_up(offer, "delegate" if context.is_delegated else call.frame, standing)

    def _used_up(self, offer: Offer, way: Way, standing: Standing) -> Problem:
        """429: the key opens the tool, and has spent its quota; when it opens calls again, and what opens this one until then."""
        ends_at = utc_text(standing.ends_at)
        others = "; ".join(map(str, self._paywall.opening(offer)))
        keys = f" Until then another key opens it: {others}." if others else ""
        instead = "".join(f" {one.instead}" for one in self._paywall.other_ways(offer, way))
        return Problem(
            429,
            "quota_used_up",
            f"The key in this call has opened its {standing.quota}; nothing was done or charged. It opens calls again from {ends_at}."
            f"{keys}{instead}",
            headers={"Retry-After": str(standing.seconds)},
            retry_after=standing.seconds,
            limit={"name": QUOTA, "calls": standing.quota.calls, "per": standing.quota.per, "ends_at": ends_at},
            unlock=self._paywall.ways_in(offer, way)[1],
        )


def show_quota(standing: Standing, context: Context) -> None:
    window = int((standing.ends_at - standing.start).total_seconds())
    added = (
        b'"quota";q=%d;w=%d' % (standing.quota.calls, window),
        b'"quota";r=%d;t=%d' % (standing.left, standing.seconds),
    )
    before = [value for _, value in context.rates]
    policies, limits = (b", ".join(values) for values in zip(*([before] if before else []), added, strict=True))
    context.rates = ((b"ratelimit-policy", policies), (b"ratelimit", limits))


@asynccontextmanager
async def opened(site: FeatureSite[None]) -> AsyncIterator[KeyUsage]:
    quotas = {name: quota for name, table in site.config.products.items() if (quota := table.allowance) is not None}
    usage = KeyUsage(site.storage, now=site.clock, monotonic=site.elapsed, quotas=quotas)
    yield usage
    await usage.flush()


async def flush(site: FeatureSite[None, KeyUsage]) -> None:
    await site.state.flush()


building = Building(
    state=opened,
    steps=lambda site: [Quotas(site.state, site.paywall, site.metrics)],
    jobs=[Job(flush, every=FLUSH, on="each")],
)
