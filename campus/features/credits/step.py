"""The step that has a key pay for its calls: a hold before the tool runs, which is captured before the answer is delivered."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from secrets import token_bytes
from typing import Any

from campus.caller import Key, Way
from campus.context import Context
from campus.features.credits.accounts import Accounts, Standing, day_of
from campus.features.credits.feature import BALANCE
from campus.features.credits.holds import Claimed, Held, UsedUp
from campus.features.usage.counts import KeyUsage
from campus.idempotency_keys import check_idempotency_key, idempotency_key_in
from campus.keys.allowances import Meter
from campus.observability import utc_text
from campus.observability.metrics import Metrics
from campus.paywall.admission import Paywall
from campus.pricing import Offer, Price
from campus.secrets import seal, unseal
from campus.steps import Answered, GatedCall, Opening, Step, price_of
from twins import Problem

META = "campus/credits"  # What a key has left, in a result's `_meta`.
RETRY_SECONDS = 5


class Credits(Step):
    """What keys pay for their calls. It follows the limits: what they refuse costs nothing."""

    name = "credits"
    after = ("limits",)

    def __init__(self, accounts: Accounts, usage: KeyUsage | None, paywall: Paywall, metrics: Metrics, now: Callable[[], Any]) -> None:
        self._accounts = accounts
        self._usage = usage
        self._paywall = paywall
        self._metrics = metrics.calls
        self._now = now

    def debits(self, call: GatedCall[Any], offer: Offer, context: Context, key: Key) -> Awaitable[Opening[Any] | None] | None:
        meters = self._accounts.meters
        if key.product not in meters:
            return self._debit_rest(call, offer, context, key)
        meter = meters[key.product]
        return None if meter is None or not meter.counts(offer) else self._debit(call, offer, context, key, meter)

    async def _debit_rest(self, call: GatedCall[Any], offer: Offer, context: Context, key: Key) -> Opening[Any] | None:
        """By a key of a product that campus.toml has no more: out of the credits that it has left, if it was ever sold with some."""
        meter = await self._accounts.meter(key)
        return None if meter is None or not meter.counts(offer) else await self._debit(call, offer, context, key, meter)

    async def _debit(self, call: GatedCall[Any], offer: Offer, context: Context, key: Key, meter: Meter) -> Opening[Any]:
        arguments = await call.canonical()  # those that are not valid cost nothing
        now = self._now()
        secret = idempotency_key_in(call.scope, call.meta)
        if secret is not None:
            check_idempotency_key(secret)
        request, price = _digest(offer, arguments), price_of(offer, arguments)
        found = await self._accounts.holds.take(
            lineage=key.lineage,
            building=offer.building,
            tool=offer.tool,
            day=day_of(now),
            period=day_of(meter.allowance.start(now)) if meter.allowance else "",
            most=meter.allowance and meter.allowance.calls,
            price=price.atomic if meter.has_credits and price else None,
            purchase=None if secret is None else sha256(f"credits\n{key.lineage}\n{secret}".encode()).digest(),
            request=request,
        )
        if isinstance(found, Claimed):
            return Bought(call, _answer_in(found, secret or "", request), context, await self._accounts.standing(key))
        standing = Standing(meter, found.left, now)
        if isinstance(found, UsedUp):
            show(context, standing)
            self._metrics.refused(self.name)
            way: Way = "delegate" if context.is_delegated else call.frame
            raise self._used_up(offer, price, way, standing, is_sold=key.product in self._accounts.meters)
        if self._usage is not None and key.product in self._accounts.meters:  # otherwise it is counted
            self._usage.count(key, context.site.name, call.tool)
        return Debit(call, found, secret, self._accounts, standing, context)

    def _used_up(self, offer: Offer, price: Price | None, way: Way, standing: Standing, *, is_sold: bool) -> Problem:
        """402: the key opens the tool, and has nothing left for this call; what opens it now, and when the allowance begins again."""
        ways, unlock = self._paywall.ways_in(offer, way)
        has = ""
        if standing.balance is not None:
            more_of_them = "whoever renews it adds credits" if is_sold else "its product is sold no more"
            has = f" It has ${standing.balance} left, and this call costs ${price}; {more_of_them}."
        allowance = standing.allowance
        again = "" if allowance is None else f" Its next {standing.meter.allowance} begin at {utc_text(allowance['ends_at'])}."
        more: dict[str, Any] = {} if standing.balance is None else {"balance": standing.balance}
        if allowance is not None:
            more["limit"] = {"name": "allowance", **allowance, "ends_at": utc_text(allowance["ends_at"])}
        detail = f"The key in this call has used up its {standing.meter}; nothing was done or charged.{has}{again} {ways}"
        return Problem(402, "credits_used_up", detail, unlock=unlock, **more)


def show(context: Context, standing: Standing) -> None:
    """Say in the response's headers what is left, once: after what limits say of it."""
    if (rates := standing.rates) is not None:
        named = dict(context.rates)
        both = zip((b"ratelimit-policy", b"ratelimit"), rates, strict=True)
        context.rates = tuple((name, b", ".join(filter(None, (named.get(name), value)))) for name, value in both)
    if standing.balance is not None:
        context.headers = (*context.headers, (BALANCE.lower().encode(), standing.balance.encode()))


@dataclass(frozen=True)
class Debit:
    """A call whose hold is on disk."""

    call: GatedCall[Any]
    held: Held
    secret: str | None
    accounts: Accounts
    standing: Standing
    context: Context
    is_paid: bool = False

    async def result(self, run: Callable[[], Awaitable[Any]]) -> Any:
        """The tool's result, once it is charged. What fails, is cancelled or is no answer costs nothing."""
        call = self.call
        try:
            result = await run()
            body = call.body_of(result)
            if body is not None and not await self.accounts.holds.capture(self.held, self._sealed(body)):
                raise in_flight("the call took so long that its credits were given back, and spent by others")
        except BaseException:  # a cancellation too
            await self._release()
            raise
        if body is None:
            return call.with_meta(result, {META: as_meta(await self._release())})
        show(self.context, self.standing)
        return call.with_meta(result, {META: as_meta(self.standing)})

    async def _release(self) -> Standing:
        left = await self.accounts.holds.release(self.held)
        standing = Standing(self.standing.meter, left, self.standing.now)
        show(self.context, standing)
        return standing

    def _sealed(self, body: bytes) -> bytes | None:
        if self.secret is None or self.held.wanted.purchase is None:
            return None
        return seal(body, self.secret, entropy=token_bytes, context=self.held.wanted.request)


@dataclass(frozen=True)
class Bought:
    """A call that was answered before, with the same Idempotency-Key: it is answered again, and costs nothing."""

    call: GatedCall[Any]
    body: bytes
    context: Context
    standing: Standing | None
    is_paid: bool = False

    async def result(self, run: Callable[[], Awaitable[Any]]) -> Any:
        if self.standing is not None:
            show(self.context, self.standing)
        return self.call.answered(Answered(self.body, {}, {META: as_meta(self.standing)} if self.standing else {}), None)


def as_meta(standing: Standing) -> Mapping[str, Any]:
    found: dict[str, Any] = {} if standing.balance is None else {"balance": standing.balance}
    if (allowance := standing.allowance) is not None:
        found["allowance"] = {**allowance, "ends_at": utc_text(allowance["ends_at"])}
    return found


def _digest(offer: Offer, arguments: Mapping[str, Any]) -> bytes:
    return sha256(json.dumps([offer.building, offer.tool, arguments], sort_keys=True, default=str).encode()).digest()


def _answer_in(found: Claimed, secret: str, request: bytes) -> bytes:
    """The answer to an earlier call with the Idempotency-Key. Raises a Problem if it was another call, or is not answered yet."""
    if not found.is_same:
        raise Problem(422, "idempotency_key_reused", "this Idempotency-Key was sent before with another call; nothing was done or charged")
    if found.answer == b"":
        detail = "The call with this Idempotency-Key was charged, and its answer was too large to be kept; nothing was charged now."
        raise Problem(409, "answer_not_kept", f"{detail} Another Idempotency-Key makes the call again, at its price.")
    if found.answer is None or (body := unseal(found.answer, secret, context=request)) is None:
        raise in_flight("a call with this Idempotency-Key is being answered")
    return body


def in_flight(why: str) -> Problem:
    """409: the same call is charged once at most."""
    detail = f"{why}; nothing was charged for this one. Send it again in {RETRY_SECONDS} s."
    return Problem(409, "call_in_flight", detail, headers={"Retry-After": str(RETRY_SECONDS)}, retry_after=RETRY_SECONDS)
