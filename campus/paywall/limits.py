"""How many calls a minute each caller, and each building, may make: further ones are refused before any work is done for them."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from random import uniform
from typing import Literal

import anyio
from starlette.types import Scope

from campus.addresses import network_of
from campus.caller import Key
from campus.config_tables import LimitsTable
from campus.context import Context
from campus.jobs import ServiceTask, Task
from campus.keys.quotas import Standing
from campus.shares import MINUTE, Counts, TokenBuckets
from twins import Problem

Kind = Literal["free", "keyed", "unpaid", "building"]
COUNTED: Mapping[Kind, str] = {
    "free": "free calls from one network address",
    "keyed": "calls with one key",
    "unpaid": "calls without a valid key or a payment from one network address",
    "building": "calls of one server by all callers together",
}
FASTER: Mapping[Kind, str] = {
    "free": "; calls with a key have a limit of their own",
    "keyed": "",
    "unpaid": "; the terms and prices of the first refusal are still valid",
    "building": "",
}


DELAY_SECONDS = 0.25
"""How long a refusal waits, so that a caller who sends the next call at once takes a few refusals a second, not thousands."""
REFUSALS_PER_SECOND = 200
"""How many are sent of those that wait: beyond fifty of them each waits longer."""
SPREAD = (0.5, 1.5)
"""Each waits for another part of that: those of one caller would otherwise all end at once, and delay the calls of others."""
DELAYED = 256
"""How many refusals wait at most, as many as an address may have connections; each is a call that runs."""


class TooManyCalls(Problem):
    """429 `too_many_calls`; `more["limit"]` names the limit."""


class Limit:
    """One key of [limits]: so many calls a minute of each holder."""

    def __init__(self, kind: Kind, calls: int, buckets: TokenBuckets) -> None:
        self._kind = kind
        self._calls = calls
        self._buckets = buckets
        self._policy = (b"ratelimit-policy", b'"%b";q=%d;w=60' % (kind.encode(), calls))
        self._name = kind.encode()

    def take(self, holder: str, context: Context, at: float) -> None:
        """Count a call of a holder. The response says how many are left. Problem 429 `too_many_calls` if none is."""
        left = self._buckets.spend(holder, at)
        missing = -left if left < 0 else self._calls - left
        seconds = ceil(missing * MINUTE / self._calls)
        context.limits = (self._policy, (b"ratelimit", b'"%b";r=%d;t=%d' % (self._name, max(left, 0), seconds)))
        if left < 0:
            raise self._reached(max(seconds, 1))

    def _reached(self, seconds: int) -> TooManyCalls:
        return TooManyCalls(
            429,
            "too_many_calls",
            f"at most {self._calls:,} {COUNTED[self._kind]} are answered in a minute; nothing was done or charged. Send this call again in"
            f" {seconds} s, and go on more slowly{FASTER[self._kind]}",
            headers={"Retry-After": str(seconds)},
            retry_after=seconds,
            limit={"name": self._kind, "calls": self._calls, "seconds": int(MINUTE)},
        )


def show_quota(standing: Standing, context: Context) -> None:
    """Add what a key has left of its product's quota to the limits that the response names."""
    window = int((standing.ends_at - standing.start).total_seconds())
    added = (
        b'"quota";q=%d;w=%d' % (standing.quota.calls, window),
        b'"quota";r=%d;t=%d' % (standing.left, standing.seconds),
    )
    before = [value for _, value in context.limits]
    policies, limits = (b", ".join(values) for values in zip(*([before] if before else []), added, strict=True))
    context.limits = ((b"ratelimit-policy", policies), (b"ratelimit", limits))


def own_buckets(limit: str, per_minute: int) -> TokenBuckets:
    """The buckets of one limit, of this process alone."""
    return TokenBuckets(per_minute)


class CallLimits:
    """The limits of [limits], for all buildings. A caller whose address is not known has none.

    `buckets(name, calls)` makes those of each limit; `services` and `tasks` are what they need to run.
    """

    def __init__(
        self,
        table: LimitsTable,
        *,
        elapsed: Callable[[], float],
        buckets: Callable[[str, int], TokenBuckets] = own_buckets,
        services: Sequence[ServiceTask] = (),
        tasks: Sequence[Task] = (),
    ) -> None:
        self.services = services
        self.tasks = tasks
        self._elapsed = elapsed
        self._of_kind = {
            kind: Limit(kind, calls, buckets(kind, calls)) for kind in COUNTED if isinstance(calls := getattr(table, kind), int)
        }
        self._delayed: Counts[None] = Counts(DELAYED)
        self._of_lookups = None if table.unpaid == "off" else Limit("unpaid", table.unpaid, buckets("lookup", table.unpaid))

    async def delay(self) -> None:
        """Wait before a refusal is sent, unless too many others wait."""
        if self._delayed.has_room(None):
            with self._delayed.added(None):
                seconds = max(DELAY_SECONDS, self._delayed.total / REFUSALS_PER_SECOND)
                await anyio.sleep(seconds * uniform(*SPREAD))  # noqa: S311  # no secret

    def count_building(self, name: str, context: Context) -> None:
        """Count a call of a building."""
        if limit := self._of_kind.get("building"):
            limit.take(name, context, self._elapsed())

    def count(self, key: Key | None, address: str, context: Context) -> None:
        """Count a call that is admitted: of its valid key, else of its address."""
        if key is not None:
            if limit := self._of_kind.get("keyed"):
                limit.take(key.lineage, context, self._elapsed())
        elif address and (limit := self._of_kind.get("free")):
            limit.take(network_of(address), context, self._elapsed())

    def count_unpaid(self, scope: Scope, context: Context) -> None:
        """Count a call that no key admits and that brings no payment, of its address."""
        client = scope.get("client")
        if client and (limit := self._of_kind.get("unpaid")):
            limit.take(network_of(client[0]), context, self._elapsed())

    def count_lookup(self, scope: Scope, context: Context) -> None:
        """Count a key that only the database may know, of the call's address. Apart from unpaid calls: the key may be valid."""
        client = scope.get("client")
        if client and self._of_lookups:
            self._of_lookups.take(network_of(client[0]), context, self._elapsed())
