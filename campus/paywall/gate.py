"""The gate of one building's tools, the same for both frames: a call is admitted by its key, passes the steps of features, and is run."""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

from fastmcp.exceptions import ToolError, ValidationError
from pydantic_core import from_json
from starlette.types import Scope

from campus.caller import Key
from campus.context import Context, context_of
from campus.errors import StorageUnavailable
from campus.paywall.admission import Paywall
from campus.paywall.principal import enter, leave
from campus.pricing import Offer
from campus.problems import storage_problem
from campus.site import Site
from campus.steps import (
    Admitted,
    Arrived,
    Debits,
    Dropped,
    DroppedCall,
    Ended,
    GatedCall,
    Opening,
    Opens,
    Refused,
    ResultT,
    Step,
    Unknown,
    Worded,
    asked,
)
from twins import ClientDisconnectedError, Problem, ServerAnswers, is_crash

MOST_FOUND = 1_000  # Offers that are kept of tools which only some callers of a building are shown; the oldest go first.
log = logging.getLogger(__name__)


class Gate:
    """Admits and runs the calls of one building's tools. `steps` are asked in their order; see campus.steps."""

    def __init__(self, site: Site[Any, Any], offers: Mapping[str, Offer], paywall: Paywall, steps: Sequence[Step] = ()) -> None:
        self.site = site
        self.offers = dict(offers)
        self._found: dict[str, Offer] = {}
        self.scopes = tuple(sorted({offer.scope for offer in offers.values()}))
        self._paywall = paywall
        self._metrics = site.metrics.calls
        self._arrived: list[Arrived] = asked(steps, "arrived")
        self._unknown: list[Unknown] = asked(steps, "unknown")
        self._identified: list[Arrived] = asked(steps, "identified")
        self._admitted: list[Admitted] = asked(steps, "admitted")
        self._not_opened: list[Refused] = asked(steps, "refused")
        self._debits: list[Debits] = asked(steps, "debits")
        self._opens: list[Opens] = asked(steps, "opens")
        self._worded: list[Worded] = asked(steps, "worded")
        self._dropped: list[DroppedCall] = asked(steps, "dropped")
        self._ended: list[Ended] = asked(steps, "ended")

    def offer(self, offer: Offer) -> None:
        """Take the offer of a tool that only some callers are shown, for the call that follows."""
        self._found.pop(offer.tool, None)
        if len(self._found) >= MOST_FOUND:
            oldest = next(iter(self._found))
            del self._found[oldest], self.offers[oldest]
        self.offers[offer.tool] = self._found[offer.tool] = offer

    def looked_up(self, scope: Scope, offer: Offer | None = None) -> None:
        """Ask the steps before the database is asked for the key of a request. Raises Dropped."""
        context = context_of(scope)
        for unknown in self._unknown:
            unknown(scope, offer, context)

    def passed(self, call: GatedCall[ResultT]) -> Awaitable[ResultT]:
        """The result of the call. Raises the refusal as a Problem, and whatever the tool raises."""
        if not self._ended or context_of(call.scope).caller is not None:  # a call made inside an admitted one is its part
            return self._passed(call)
        return self._followed(call)

    async def _followed(self, call: GatedCall[ResultT]) -> ResultT:
        outcome = "cancelled"
        try:
            result = await self._passed(call)
            outcome = "tool_error" if getattr(result, "is_error", False) else "ok"
        except (ServerAnswers, Dropped):
            outcome = ""  # the call comes again; or nothing was looked at
            raise
        except ClientDisconnectedError:
            raise
        except Exception as error:
            outcome = outcome_of(error)
            raise
        finally:
            if outcome:
                for ended in self._ended:
                    try:
                        ended(call, context_of(call.scope), outcome)
                    except Exception:  # the call is over, and may be paid: a fault of who notes it takes nothing from its caller
                        log.exception("a step failed after a call", extra={"step": step_of(ended), "building": self.site.name})
        return result

    async def _passed(self, call: GatedCall[ResultT]) -> ResultT:
        offer = self.offers[call.tool]
        context = context_of(call.scope)
        context.site = self.site
        context.route = call.route
        is_new = not context.is_counted
        context.is_counted = True
        debit: Opening[ResultT] | None = None
        try:
            if is_new:
                for arrived in self._arrived:
                    arrived(call, offer, context)
            caller = context.caller  # of the outermost call, if this one is made inside an admitted one
            if caller is None:
                credential = self._paywall.peek(call.scope)
                if credential is None:
                    if is_new:
                        self.looked_up(call.scope, offer)
                    credential = await self._paywall.find(call.scope)
                if is_new and self._identified:
                    context.credential = credential
                    for identified in self._identified:
                        identified(call, offer, context)
                try:
                    caller = self._paywall.judge(offer, call.scope, credential, frame=call.frame)
                except Problem as refusal:
                    return await self._refused(call, offer, context, refusal, asks=is_new)
                if is_new:
                    key = credential.key if credential.state == "valid" else None  # also where the tool is free and no key counts
                    try:
                        for admitted in self._admitted:
                            waits = admitted(call, offer, context, key)
                            if waits is not None:
                                await waits
                    except Dropped:
                        raise
                    except Problem as refusal:
                        if refusal.status == 400:  # nothing of the key: the arguments are not valid
                            raise
                        context.refusal = refusal
                if self._debits and context.refusal is None and caller.key is not None:
                    debit = await self._debited(call, offer, context, caller.key)
                if context.refusal is not None:
                    context.caller = None
                    return await self._refused(call, offer, context, context.refusal, asks=False)
                if is_new:
                    self._metrics.opened(self.site.name, "free" if caller.key is None else "key")
            entered = enter(context.credential, call.scope, self.scopes)
            try:
                if debit is not None:
                    result = await debit.result(partial(self._run, call, offer))
                else:
                    result = await (call.run() if offer.access.fails_if is None else self._run(call, offer))
            finally:
                leave(entered)
        except Dropped as refusal:
            for dropped in self._dropped:
                await dropped(call, refusal)
            raise
        except Exception as error:  # of the database, while the key was looked up, a payment was stored or the tool ran, also in its server
            fault = error if isinstance(error, StorageUnavailable) else error.__cause__
            if isinstance(error, Problem) or not isinstance(fault, StorageUnavailable):
                raise
            raise storage_problem(fault, log, building=self.site.name, request_id=call.scope.get("request_id")) from None
        return result if caller.key_ignored is None else call.noted(result, caller.key_ignored)

    async def _debited(self, call: GatedCall[ResultT], offer: Offer, context: Context, key: Key) -> Opening[ResultT] | None:
        """How the key pays for the call; None if it costs nothing, or if the key has not enough, which is the context's refusal then."""
        try:
            for debits in self._debits:
                if (waits := debits(call, offer, context, key)) is not None and (debit := await waits) is not None:
                    return debit
        except Problem as refusal:
            if refusal.status != 402:
                raise
            context.refusal = refusal
        return None

    async def _refused(self, call: GatedCall[ResultT], offer: Offer, context: Context, refusal: Problem, *, asks: bool) -> ResultT:
        """The answer of the step that opens the call. Raises the refusal otherwise."""
        opening: Opening[ResultT] | None = None
        for opens in self._opens:
            if (opening := opens(call, offer, context, refusal)) is not None:
                break
        if asks and (opening is None or not opening.is_paid):
            for not_opened in self._not_opened:
                not_opened(call, offer, context)
        if opening is None:
            for worded in self._worded:
                refusal = worded(call, context, refusal)
            raise refusal
        entered = enter(None, call.scope, ())
        try:
            return await opening.result(partial(self._run, call, offer))
        finally:
            leave(entered)

    async def _run(self, call: GatedCall[ResultT], offer: Offer) -> ResultT:
        """The tool's result. Raises Problem 400 `tool_error` for one that campus.toml marks as a failure: it is not charged."""
        result = await call.run()
        rule = offer.access.fails_if
        if rule is not None and (body := call.body_of(result)) and (reason := rule.failure_in(from_json(body))) is not None:
            raise Problem(400, "tool_error", f"the tool reports a failure: {reason}")
        return result


def step_of(moment: Any) -> str:
    """The name of the step whose method it is."""
    return str(getattr(getattr(moment, "__self__", None), "name", moment))


def outcome_of(error: Exception) -> str:
    """The code of what a call raised; `internal_error` for what nobody foresaw."""
    if isinstance(error, Problem):
        return error.code
    if isinstance(error, ValidationError):
        return "invalid_request"
    return "tool_error" if isinstance(error, ToolError) and not is_crash(error) else "internal_error"
