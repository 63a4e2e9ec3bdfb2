"""How many calls a minute each caller, and each building, may make: further ones are refused before any work is done for them."""

from collections.abc import Callable, Mapping
from math import ceil
from random import uniform
from typing import Any, Literal

import anyio
from starlette.types import Scope

from campus.addresses import network_of
from campus.caller import Key
from campus.context import Context
from campus.observability.metrics import Metrics
from campus.pricing import Offer
from campus.shares import MINUTE, Counts, TokenBuckets
from campus.steps import Dropped, GatedCall, Step

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
REFUSALS_PER_SECOND = 200  # How many are sent of those that wait: beyond fifty of them each waits longer.
SPREAD = (0.5, 1.5)
"""Each waits for another part of that: those of one caller would otherwise all end at once, and delay the calls of others."""
DELAYED = 256  # How many refusals wait at most, as many as an address may have connections; each is a call that runs.


class TooManyCalls(Dropped):
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
        context.rates = (self._policy, (b"ratelimit", b'"%b";r=%d;t=%d' % (self._name, max(left, 0), seconds)))
        if left < 0:
            raise self.reached(max(seconds, 1))

    def reached(self, seconds: int) -> TooManyCalls:
        """Problem 429: calls are answered again after so many seconds."""
        return TooManyCalls(
            429,
            "too_many_calls",
            f"at most {self._calls:,} {COUNTED[self._kind]} are answered in a minute; nothing was done or charged. Send this call again in"
            f" {seconds} s, and go on more slowly{FASTER[self._kind]}",
            headers={"Retry-After": str(seconds)},
            retry_after=seconds,
            limit={"name": self._kind, "calls": self._calls, "seconds": int(MINUTE)},
        )


def own_buckets(limit: str, per_minute: int) -> TokenBuckets:
    return TokenBuckets(per_minute)


class CallLimits(Step):
    """The limits of [limits], for all buildings. A caller whose address is not known has none.

    `calls` are those a minute, by the kind of limit, as far as there is one. `buckets(name, calls)` makes those of each limit.
    """

    name = "limits"

    def __init__(
        self,
        calls: Mapping[Kind, int],
        *,
        elapsed: Callable[[], float],
        metrics: Metrics,
        buckets: Callable[[str, int], TokenBuckets] = own_buckets,
    ) -> None:
        self._elapsed = elapsed
        self._metrics = metrics.calls
        of_kind = {kind: Limit(kind, number, buckets(kind, number)) for kind, number in calls.items()}
        self._free, self._keyed, self._unpaid, self._building = map(of_kind.get, COUNTED)
        self._lookups = Limit("unpaid", calls["unpaid"], buckets("lookup", calls["unpaid"])) if "unpaid" in calls else None
        self._delayed: Counts[None] = Counts(DELAYED)
        if self._building is None:
            self.arrived = None  # type: ignore[assignment]

    def arrived(self, call: GatedCall[Any], offer: Offer, context: Context) -> None:
        if self._building and offer.access.is_limited:
            self._building.take(context.site.name, context, self._elapsed())

    def unknown(self, scope: Scope, offer: Offer | None, context: Context) -> None:
        """Count a key that only the database may know, of the call's address. Apart from unpaid calls: the key may be valid."""
        client = scope.get("client")
        if client and self._lookups and (offer is None or offer.access.is_limited):
            self._lookups.take(network_of(client[0]), context, self._elapsed())

    def admitted(self, call: GatedCall[Any], offer: Offer, context: Context, key: Key | None) -> None:
        if not offer.access.is_limited:
            return
        if key is not None:
            if self._keyed:
                self._keyed.take(key.lineage, context, self._elapsed())
        elif self._free and context.caller and context.caller.address:
            self._free.take(network_of(context.caller.address), context, self._elapsed())

    def refused(self, call: GatedCall[Any], offer: Offer, context: Context) -> None:
        client = call.scope.get("client")
        if client and self._unpaid and offer.access.is_limited:
            self._unpaid.take(network_of(client[0]), context, self._elapsed())

    async def dropped(self, call: GatedCall[Any], refusal: Dropped) -> None:
        """Wait before a refusal is sent, unless too many others wait."""
        if not isinstance(refusal, TooManyCalls):
            return
        self._metrics.refused(refusal.more["limit"]["name"])
        if self._delayed.has_room(None):
            with self._delayed.added(None):
                seconds = max(DELAY_SECONDS, self._delayed.total / REFUSALS_PER_SECOND)
                await anyio.sleep(seconds * uniform(*SPREAD))  # noqa: S311  # no secret
