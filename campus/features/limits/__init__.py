"""Limits: how many calls a minute each caller, and each building, may make; a step that drops further ones with 429."""

from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple

import anyio
from pydantic import BeforeValidator

from campus.building import Building, Job, Service, Settings
from campus.features.limits.tables import Tables

FORGOTTEN_EVERY = timedelta(minutes=10)

MOST_CALLS = 10_000_000


def _is_limit(calls: Any) -> Any:
    if calls != "off" and not (isinstance(calls, int) and 1 <= calls <= MOST_CALLS):
        raise ValueError(f'write the calls a minute, a whole number from 1 to {MOST_CALLS:,}, or "off"')
    return calls


CallsAMinute = Annotated[int | Literal["off"], BeforeValidator(_is_limit)]


class LimitsTable(Settings):
    """[limits]: how many calls a minute all processes together answer; further ones get 429. "off" takes a limit away."""

    free: CallsAMinute = 600
    """The calls a minute of free tools without a key, from one address (an IPv6 /64)."""
    keyed: CallsAMinute = 6_000
    """The calls a minute with one key, and with those that replaced it; also of free tools."""
    unpaid: CallsAMinute = 600
    """The calls a minute that bring neither a valid key nor a payment for a tool that is not free, from one address (an IPv6 /64)."""
    building: CallsAMinute = "off"
    """The calls a minute of one building by all callers together, to leave room for other buildings; one caller can use it up."""


class Limits(NamedTuple):
    """The step, and on PostgreSQL what shares it with the other processes."""

    step: Any
    shared: Any


def opened(site: Any) -> Limits:
    """The limits of this process, and on PostgreSQL of all that serve."""
    from campus.features.limits.shared import SharedLimits
    from campus.features.limits.step import COUNTED, CallLimits, own_buckets

    shared = SharedLimits(site.storage, elapsed=site.elapsed) if site.shares else None
    calls = {kind: number for kind in COUNTED if (number := getattr(site.settings, kind)) != "off"}
    buckets = shared.buckets if shared else own_buckets
    return Limits(CallLimits(calls, elapsed=site.elapsed, metrics=site.metrics, buckets=buckets), shared)


async def share_limits(site: Any) -> None:
    """Exchange what callers spend with the other processes."""
    await (site.state.shared.run() if site.state.shared else anyio.sleep_forever())


async def forget_limits(site: Any) -> bool | None:
    """Delete the rows of those who have all of their limit again."""
    return False if site.state.shared is None else await site.state.shared.forget()


feature = Building(
    settings=LimitsTable,
    is_default=True,
    tables=Tables,
    state=opened,
    steps=lambda site: [site.state.step],
    services=[Service(share_limits)],
    jobs=[Job(forget_limits, every=FORGOTTEN_EVERY)],
)
