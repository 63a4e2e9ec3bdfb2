"""The step that counts what keys call, and what stores the counts."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from campus.building import Building, Job
from campus.caller import Key
from campus.catalog.parts import FeatureSite
from campus.context import Context
from campus.features.usage.counts import KeyUsage
from campus.keys.allowances import Meter
from campus.pricing import Offer
from campus.steps import GatedCall, Step

FLUSH = timedelta(seconds=10)  # What a crash may lose.


class Counts(Step):
    """What keys call. It follows the limits: what they refuse does not count. A call that a key pays for is counted once it did."""

    name = "usage"
    after = ("limits",)

    def __init__(self, usage: KeyUsage, meters: Mapping[str, Meter | None]) -> None:
        self._usage = usage
        self._meters = meters

    def admitted(self, call: GatedCall[Any], offer: Offer, context: Context, key: Key | None) -> None:
        if key is None:
            return
        is_opened = context.caller is not None and context.caller.key is not None
        if not is_opened or (meter := self._meters.get(key.product)) is None or not meter.counts(offer):
            self._usage.count(key, context.site.name, call.tool)


@asynccontextmanager
async def opened(site: FeatureSite[None]) -> AsyncIterator[KeyUsage]:
    usage = KeyUsage(site.storage, now=site.clock)
    yield usage
    await usage.flush()


async def flush(site: FeatureSite[None, KeyUsage]) -> None:
    await site.state.flush()


building = Building(
    state=opened,
    steps=lambda site: [Counts(site.state, site.config.meters)],
    jobs=[Job(flush, every=FLUSH, on="each")],
)
