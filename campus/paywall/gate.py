"""The gate of one building's tools, the same for both frames: a call is admitted by its key, or sold, and then run."""

import logging
from collections.abc import Awaitable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from fastmcp.exceptions import ToolError, ValidationError
from pydantic_core import from_json, to_json
from starlette.types import Scope

from campus.caller import Frame, Key
from campus.context import Context, context_of
from campus.errors import KeyRefused, StorageUnavailable
from campus.keys.audit_log import AuditLog
from campus.keys.usage import KeyUsage
from campus.payments.payment import PaidAnswer, Payment, StoredAnswer
from campus.payments.states import not_sold
from campus.payments.terms import without_terms
from campus.payments.wire import purchase_key
from campus.paywall.admission import QUOTA, Paywall
from campus.paywall.limits import CallLimits, TooManyCalls, show_quota
from campus.paywall.principal import enter, leave
from campus.paywall.selling import PaidRequest, Selling
from campus.pricing import Offer
from campus.problems import storage_problem
from campus.site import Site
from twins import ClientDisconnectedError, Problem, ServerAnswers, is_crash

PLACEHOLDERS = str.maketrans({"{": ":", "}": None})
"""How the URL of a payment's terms names a part of the path that has no value."""
MOST_FOUND = 1_000
"""Offers that are kept of tools which only some callers of a building are shown; the oldest go first."""
ResultT = TypeVar("ResultT")
log = logging.getLogger(__name__)


class GatedCall(Protocol[ResultT]):
    """A call as the gate handles it: `paywall.http` and `paywall.mcp` read it from their frame, and write its result there."""

    frame: Frame
    scope: Scope
    tool: str
    """The tool's name."""
    route: str
    """What the log and the metrics call it."""

    @property
    def method(self) -> str:
        """The method of the tool's HTTP route, which payment terms name."""
        ...

    def run(self) -> Awaitable[ResultT]:
        """The tool's result. Raises a Problem for arguments that are not valid, and whatever the tool raises."""
        ...

    def body_of(self, result: ResultT) -> bytes | None:
        """The JSON that HTTP sends for a result; None for one that is no answer, which cannot be sold."""
        ...

    def noted(self, result: ResultT, key_ignored: str) -> ResultT:
        """The result, with the reason why the key that was sent does not count."""
        ...

    def payment(self) -> Payment | None:
        """The payment that the call brings. Problem 400 `invalid_payment` for one that cannot be read."""
        ...

    def sent(self) -> Awaitable[dict[str, Any] | None]:
        """The arguments as they were sent; None if they cannot be read."""
        ...

    def canonical(self) -> Awaitable[dict[str, Any]]:
        """The arguments in the form that a payment is bound to. Raises a Problem for arguments that are not valid."""
        ...

    def is_quoted(self, offer: Offer) -> bool:
        """Whether a call without a payment has its arguments read, for terms that name them."""
        ...

    def idempotency_key(self, sent: Mapping[str, Any] | None) -> str | None:
        """The caller's Idempotency-Key, also from among the arguments."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Entered while a sale may wait for its settlement."""
        ...

    def delivered(self, sold: PaidAnswer, made: ResultT | None) -> ResultT:
        """A bought answer with its receipt; `made` is the tool's result if it ran for this call."""
        ...


class NotSoldError(Exception):
    """The tool ran for a payment and gave no answer: nothing is charged, and its result is delivered as it is."""

    def __init__(self, result: Any) -> None:
        super().__init__("the tool gave no answer")
        self.result = result


class Gate:
    """Admits, sells and runs the calls of one building's tools. Without `selling` only keys open what is not free."""

    def __init__(
        self,
        site: Site[Any, Any],
        offers: Mapping[str, Offer],
        paywall: Paywall,
        limits: CallLimits,
        usage: KeyUsage,
        selling: Selling | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.site = site
        self.offers = dict(offers)
        self._found: dict[str, Offer] = {}
        self.scopes = tuple(sorted({offer.scope for offer in offers.values()}))
        self._paywall = paywall
        self._limits = limits
        self._usage = usage
        self.selling = selling
        self._audit = audit
        self._metrics = site.metrics.calls

    def offer(self, offer: Offer) -> None:
        """Take the offer of a tool that only some callers are shown, for the call that follows."""
        self._found.pop(offer.tool, None)
        if len(self._found) >= MOST_FOUND:
            oldest = next(iter(self._found))
            del self._found[oldest], self.offers[oldest]
        self.offers[offer.tool] = self._found[offer.tool] = offer

    def passed(self, call: GatedCall[ResultT]) -> Awaitable[ResultT]:
        """The result of the call. Raises the refusal as a Problem, and whatever the tool raises."""
        if self._audit is None or context_of(call.scope).caller is not None:  # a call made inside an admitted one is its part
            return self._passed(call)
        return self._audited(call, self._audit)

    async def _audited(self, call: GatedCall[ResultT], audit: AuditLog) -> ResultT:
        outcome = "cancelled"
        try:
            result = await self._passed(call)
            outcome = "tool_error" if getattr(result, "is_error", False) else "ok"
        except (ServerAnswers, TooManyCalls):
            outcome = ""  # the call comes again; or nothing was looked at
            raise
        except ClientDisconnectedError:
            raise
        except Exception as error:
            outcome = outcome_of(error)
            raise
        finally:
            if outcome:
                context = context_of(call.scope)
                who = actor_of(context)
                request_id = call.scope.get("request_id")
                audit.note(who, self.site.name, call.tool, outcome, frame=call.frame, amount=context.paid, request_id=request_id)
        return result

    async def _passed(self, call: GatedCall[ResultT]) -> ResultT:
        offer = self.offers[call.tool]
        context = context_of(call.scope)
        context.site = self.site
        context.route = call.route
        is_new = not context.is_counted
        counts = offer.access.is_limited and is_new
        context.is_counted = True
        try:
            if counts:
                self._limits.count_building(self.site.name, context)
            caller = context.caller  # of the outermost call, if this one is made inside an admitted one
            if caller is None:
                credential = self._paywall.peek(call.scope)
                if credential is None:
                    if counts:
                        self._limits.count_lookup(call.scope, context)
                    credential = await self._paywall.find(call.scope)
                try:
                    caller = self._paywall.judge(offer, call.scope, credential, frame=call.frame)
                except Problem as refusal:
                    return await self._refused(call, offer, refusal, counts=counts)
                key = credential.key if credential.state == "valid" else None  # also where the tool is free and no key counts
                if counts:
                    self._limits.count(key, caller.address, context)
                if is_new and key is not None:
                    if caller.key is not None and self._usage.has_quota(key):
                        await call.canonical()  # arguments that are not valid take nothing of it
                        await self._spend(call, offer, key, context)
                    else:
                        self._usage.count(key, self.site.name, call.tool, is_opened=caller.key is not None)
                if context.used_up is not None:
                    context.caller = None
                    return await self._refused(call, offer, context.used_up, counts=False)
                if is_new:
                    self._metrics.opened(self.site.name, "free" if caller.key is None else "key")
            entered = enter(context.credential, call.scope, self.scopes)
            try:
                result = await (call.run() if offer.access.fails_if is None else self._run(call, offer))
            finally:
                leave(entered)
        except TooManyCalls as refusal:
            self._metrics.refused(refusal.more["limit"]["name"])
            await self._limits.delay()
            raise
        except Exception as error:  # of the database, while the key was looked up, a payment was stored or the tool ran, also in its server
            fault = error if isinstance(error, StorageUnavailable) else error.__cause__
            if isinstance(error, Problem) or not isinstance(fault, StorageUnavailable):
                raise
            raise storage_problem(fault, log, building=self.site.name, request_id=call.scope.get("request_id")) from None
        return result if caller.key_ignored is None else call.noted(result, caller.key_ignored)

    async def _spend(self, call: GatedCall[Any], offer: Offer, key: Key, context: Context) -> None:
        """Count a call that a key with a quota opens; where that is spent, note the refusal instead."""
        standing = await self._usage.standing(key)
        if standing.left == 0:
            self._metrics.refused(QUOTA)
            context.used_up = self._paywall.used_up(offer, call.scope, standing, frame=call.frame)
        else:
            self._usage.count(key, self.site.name, call.tool, standing=standing, is_opened=True)
        show_quota(standing, context)

    async def _refused(self, call: GatedCall[ResultT], offer: Offer, refusal: Problem, *, counts: bool) -> ResultT:
        """The answer that the call's payment buys, where the tool is sold. Raises the refusal otherwise."""
        context = context_of(call.scope)
        selling = None if context.is_connected or self.selling is None or not self.selling.pricing.sells(offer) else self.selling
        payment = call.payment() if selling else None
        if counts and payment is None:
            self._limits.count_unpaid(call.scope, context)
        if selling is None:
            raise self._for_keys_alone(call, refusal)
        entered = enter(None, call.scope, ())
        try:
            with call.waiting():
                return await self._sold(call, offer, refusal, selling, payment)
        finally:
            leave(entered)

    def _for_keys_alone(self, call: GatedCall[Any], refusal: Problem) -> Problem:
        if refusal.status != 402 or call.frame == "mcp":
            return refusal
        return without_terms(refusal, f"{self.site.url}{call.route.translate(PLACEHOLDERS)}", call.tool, per_call=self.selling is not None)

    async def _run(self, call: GatedCall[ResultT], offer: Offer) -> ResultT:
        """The tool's result. Raises Problem 400 `tool_error` for one that campus.toml marks as a failure: it is not charged."""
        result = await call.run()
        rule = offer.access.fails_if
        if rule is not None and (body := call.body_of(result)) and (reason := rule.failure_in(from_json(body))) is not None:
            raise Problem(400, "tool_error", f"the tool reports a failure: {reason}")
        return result

    async def _sold(self, call: GatedCall[ResultT], offer: Offer, refusal: Problem, selling: Selling, payment: Payment | None) -> ResultT:
        """The answer that the call's payment buys, or that the same call bought before. Raises the refusal with its terms otherwise."""
        if payment is not None:
            return await self._bought(call, offer, payment, selling)
        sent = await call.sent() if call.is_quoted(offer) else None
        request = PaidRequest(call.scope, call.frame, call.method, call.idempotency_key(sent))
        shown = None if sent is None else await _as_far_as_valid(call, sent)
        return await self._delivered(call, offer, await selling.bought_before(refusal, offer, shown, request), None)

    async def _bought(self, call: GatedCall[ResultT], offer: Offer, payment: Payment, selling: Selling) -> ResultT:
        """Run the call for its payment. Arguments that are not valid are refused before anything is reserved."""
        arguments = await call.canonical()
        key = purchase_key(payment, call.idempotency_key(await call.sent()))
        request = PaidRequest(call.scope, call.frame, call.method, key)
        made: list[ResultT] = []

        async def run() -> StoredAnswer:
            result = await self._run(call, offer)
            body = call.body_of(result)
            if body is None:
                raise NotSoldError(result)
            made.append(result)
            return StoredAnswer(body)

        try:
            sale = selling.sale(offer, arguments, request)
            if offer.access.sells and (renewed := arguments.get(offer.access.renews or "")):
                sale = replace(sale, check=partial(self._check_renewal, arguments[offer.access.sells], renewed))
            sold = await selling.sell(payment, sale, request, run)
        except NotSoldError as unsold:
            result: ResultT = unsold.result
            return result
        if not sold.replayed:
            context_of(call.scope).paid = sale.amount
            self._metrics.opened(self.site.name, "paid")
            self._metrics.earned(self.site.name, call.tool, sale.amount)
        return await self._delivered(call, offer, sold, made[0] if made else None)

    async def _delivered(self, call: GatedCall[ResultT], offer: Offer, sold: PaidAnswer, made: ResultT | None) -> ResultT:
        """The bought answer; that of a renewal was made before the charge, and is given the end that the key has by it."""
        if offer.access.ends is None or (end := await self.site.keys.end_of_renewal(sold.payment)) is None:
            return call.delivered(sold, made)
        body = {**from_json(sold.answer.body), offer.access.ends: end}
        return call.delivered(replace(sold, answer=StoredAnswer(to_json(body))), None)

    async def _check_renewal(self, product: str, key_id: str) -> None:
        try:
            await self.site.keys.check_renewal(product, key_id)
        except KeyRefused as refused:
            raise not_sold(str(refused)) from None


def actor_of(context: Context) -> str | None:
    """Who calls, for the audit log: the payer, or the id of the key that was sent, valid or not; None without either."""
    if context.caller is not None and context.caller.payer is not None:
        return context.caller.payer
    key = context.credential and context.credential.key
    return key.id if key else None


def outcome_of(error: Exception) -> str:
    """The code of what a call raised; `internal_error` for what nobody foresaw."""
    if isinstance(error, Problem):
        return error.code
    if isinstance(error, ValidationError):
        return "invalid_request"
    return "tool_error" if isinstance(error, ToolError) and not is_crash(error) else "internal_error"


async def _as_far_as_valid(call: GatedCall[Any], sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments in canonical form; as they were sent if they are not valid, and can buy nothing."""
    try:
        return await call.canonical()
    except Problem:
        return sent
