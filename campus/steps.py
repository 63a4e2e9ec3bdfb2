"""The contract of the gate with features: what a call is, the moments at which steps are asked, and in which order.

A step has a method for each moment that it wants; the gate asks nobody at the others. The moments of a call, in this order:

arrived    before anything is looked at, for every call that is not made inside an admitted one
unknown    only the database may know the key that was sent; `offer` is None for a request that is no call
identified what the caller sent is known, as `context.credential`: its state is absent, valid, unknown, expired or revoked
admitted   the tool is free, or the key opens it; `key` is the valid key that came with it. A Problem that is raised here is the
           key's refusal: the call may be sold
debits     the key opens the tool, and no step refused it: returns None for a call that costs the key nothing, or something to await
           which takes what it costs, and returns the Opening that runs the tool; the first step that does so. A Problem 402 is the
           key's refusal, any other the answer. Asked again if the call passes the gate again
opens      a refusal of the paywall or of a step: an Opening sells the answer; the first step that returns one does
refused    no key opens it, and nobody sells it or no payment came; not asked for the refusal of a step
worded     nobody sells it: returns the refusal as it is written
dropped    a Dropped was raised: awaited before it is answered
ended      the call's outcome is known: ok, tool_error, cancelled, or the code of its problem

`arrived`, `unknown` and `refused` may raise Dropped, which ends the call unheard: nobody sells it, and `ended` is not told. Any other
Problem of theirs, and of `identified`, is the answer: whoever pays gets it too. `admitted` and `debits` may return something to await, and
`dropped` is `async def`; the others are plain functions, so that a step that waits for nothing costs no coroutine.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.types import Scope

from campus.caller import Frame, Key, Way
from campus.context import Context, Slot
from campus.errors import LoadError
from campus.pricing import Offer, Price
from twins import Answer, FieldError, Problem, RouteEntry, invalid_request, pointer_to

__all__ = ["PAID", "Answered", "Dropped", "Explained", "GatedCall", "Opening", "Step", "Unlock", "price_of"]

ResultT = TypeVar("ResultT")
PAID = Slot[int]()
"""What the call cost its payer, in the token's smallest unit: noted by the step that sold it, for those that come after."""


def price_of(offer: Offer, arguments: Mapping[str, Any]) -> Price | None:
    """What a call with these canonical arguments costs. Problem 422 if the argument that sets its price cannot be counted."""
    try:
        return offer.price_for(arguments)
    except ValueError as error:
        argument = offer.access.per.argument if offer.access.per else ""
        raise invalid_request([FieldError(pointer_to("arguments", argument), "no_price", str(error))]) from None


class Answered(NamedTuple):
    """An answer of a tool that was stored: its JSON, and what HTTP adds in headers, and MCP in `_meta`."""

    body: bytes
    headers: Mapping[str, str] = {}
    meta: Mapping[str, Any] = {}


class Unlock(NamedTuple):
    """A way to open a tool without a key: a sentence for its refusals, what a caller whose key is used up does, and as data."""

    sentence: str
    instead: str
    data: Mapping[str, Any] | None


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

    def with_meta(self, result: ResultT, meta: Mapping[str, Any]) -> ResultT:
        """The result, over MCP with more in its `_meta`; over HTTP the same is in headers."""
        ...

    @property
    def meta(self) -> Mapping[str, Any]:
        """The request's `_meta` over MCP; empty over HTTP, where the same is in headers."""
        ...

    def sent(self) -> Awaitable[dict[str, Any] | None]:
        """The arguments as they were sent; None if they cannot be read."""
        ...

    def canonical(self) -> Awaitable[dict[str, Any]]:
        """The arguments in the form that a payment is bound to. Raises a Problem for arguments that are not valid."""
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """Entered while a step may wait for others before it answers: the caller is kept from giving up, and the call from ending."""
        ...

    def answered(self, answer: Answered, made: ResultT | None) -> ResultT:
        """A stored answer as this frame writes it; `made` is the tool's result if it ran for this call."""
        ...


class Purchase(NamedTuple):
    """What finds the task of a payment again, and how long its result is kept: as long as the answer of a payment."""

    digest: bytes
    kept: timedelta


class Sold(NamedTuple):
    """What became of the payment of a task whose process is gone: `is_known` is false while it may still be charged, `meta` the receipt
    if it was."""

    is_known: bool
    meta: Mapping[str, Any] | None = None


class Entry(Protocol):
    """What a building's calls pass before the gate: it takes those that go on after their request, and has them pass the gate itself."""

    routes: Sequence[RouteEntry]

    def over_http(self, call: GatedCall[Any]) -> Awaitable[Answer | None]:
        """The answer to a call that it takes; None for any other."""
        ...

    def over_mcp(self, call: GatedCall[Any]) -> Awaitable[Any]:
        """The result of a call that its client lets go on after its request."""
        ...


class TaskSeller(Protocol):
    """What a step that sells calls knows of those that go on after their request."""

    def purchase(self, call: GatedCall[Any], offer: Offer) -> Awaitable[Purchase | None]:
        """What finds the task of the call's payment again; None without a payment that can be read."""
        ...

    def payable_until(self, call: GatedCall[Any]) -> int:
        """When the call's payment can no longer be charged, in Unix seconds."""
        ...

    def sold(self, session: AsyncSession, payment: str) -> Awaitable[Sold]:
        """What became of the payment of this id."""
        ...

    def headers(self, meta: Mapping[str, Any]) -> Mapping[str, str]:
        """The headers of the receipt in a result's `_meta`."""
        ...


class Dropped(Problem):
    """A refusal that ends the call unheard."""


class Explained(Problem):
    """A refusal that says more over MCP than its body."""

    def meta(self, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the result that it is over MCP has in `_meta`; `body` is its JSON."""
        return None


class Opening(Protocol[ResultT]):
    """How a call is opened that no key opens. `is_paid` says whether a payment came with it."""

    @property
    def is_paid(self) -> bool:
        """Whether it is an attempt to pay, or only asks for the terms."""
        ...

    def result(self, run: Callable[[], Awaitable[ResultT]]) -> Awaitable[ResultT]:
        """The answer; `run` runs the tool. Raises the refusal, with the terms, if it cannot be opened."""
        ...


Arrived = Callable[[GatedCall[Any], Offer, Context], None]
Unknown = Callable[[Scope, Offer | None, Context], None]
Refused = Callable[[GatedCall[Any], Offer, Context], None]
Admitted = Callable[[GatedCall[Any], Offer, Context, Key | None], Awaitable[None] | None]
Debits = Callable[[GatedCall[Any], Offer, Context, Key], Awaitable[Opening[Any] | None] | None]
Opens = Callable[[GatedCall[Any], Offer, Context, Problem], Opening[Any] | None]
DroppedCall = Callable[[GatedCall[Any], Dropped], Awaitable[None]]
Worded = Callable[[GatedCall[Any], Context, Problem], Problem]
Ended = Callable[[GatedCall[Any], Context, str], None]
Unlocks = Callable[[Offer, Way], Unlock | None]
MOMENTS = frozenset(("arrived", "unknown", "identified", "admitted", "debits", "refused", "opens", "worded", "dropped", "ended", "unlocks"))
AWAITED = ("admitted", "debits", "dropped")


class Step:
    """A step, of one feature and for all buildings (the call's is `context.site`). See above for the moments.

    Any object with a `name` and some of these is one: a feature that every command imports need not import this module.
    """

    name: str = ""
    after: Collection[str] = ()
    """The steps that come before it, where they are there."""
    before: Collection[str] = ()
    """The steps that come after it."""

    arrived: Arrived | None = None
    unknown: Unknown | None = None
    identified: Arrived | None = None
    admitted: Admitted | None = None
    debits: Debits | None = None
    refused: Refused | None = None
    opens: Opens | None = None
    worded: Worded | None = None
    dropped: DroppedCall | None = None
    ended: Ended | None = None
    unlocks: Unlocks | None = None
    """No moment: how a tool is opened without a key by those who come one way; a refusal says so."""


def task_seller(steps: Iterable[Any]) -> TaskSeller | None:
    """The step that sells calls which go on after their request; None if none does."""
    return next((step for step in steps if hasattr(step, "payable_until")), None)


def asked(steps: Iterable[Step], moment: str) -> list[Any]:
    """Who wants to be asked at a moment, in the order of the steps."""
    return [found for step in steps if (found := getattr(step, moment, None)) is not None]


def checked_step(step: Any) -> Any:
    """A step as it is. LoadError for one without a name or a moment, with a misspelt moment, or with one that must not be awaited."""
    what = f"the step {getattr(step, 'name', None) or step!r}"
    if not getattr(step, "name", None):
        raise LoadError(f"{what} has no name; other steps are ordered by it")
    offered = [name for name in dir(step) if not name.startswith("_") and callable(getattr(step, name))]
    for name in offered:
        if name not in MOMENTS and (meant := get_close_matches(name, MOMENTS, n=1, cutoff=0.8)):
            raise LoadError(f"{what} has {name}, which is no moment of a call; write {meant[0]}, or choose another name")
        if name in MOMENTS and name not in AWAITED and iscoroutinefunction(getattr(step, name)):
            raise LoadError(f"{what} has async def {name}, which nobody awaits; of these only {' and '.join(AWAITED)} may be async")
    if "dropped" in offered and not iscoroutinefunction(step.dropped):
        raise LoadError(f"{what} has def dropped, which is awaited; write async def dropped")
    if not MOMENTS & set(offered):
        raise LoadError(f"{what} has none of the moments of a call: {', '.join(sorted(MOMENTS))}")
    return step


def _texts(step: Any, which: str) -> Collection[str]:
    names: Collection[str] = getattr(step, which, ())
    if isinstance(names, str):
        raise LoadError(f"the step {step.name} has {which} = {names!r}, which is one text; write ({names!r},)")
    return names


def in_order(steps: Iterable[Step]) -> list[Step]:
    """The steps by their declared names, and otherwise in the order of their names. LoadError for what cannot be one or be put in order."""
    given = sorted(map(checked_step, steps), key=lambda step: step.name)
    by_name = {step.name: step for step in given}
    if len(by_name) < len(given):
        raise LoadError(f"two steps of a call have one name, of: {', '.join(step.name for step in given)}")
    for step in given:
        for named in (*_texts(step, "after"), *_texts(step, "before")):
            if named not in by_name and (meant := get_close_matches(named, by_name, n=1, cutoff=0.8)):
                raise LoadError(f"the step {step.name} is to be before or after {named!r}, which is no step; write {meant[0]!r}")
    graph = {name: {each for each in getattr(step, "after", ()) if each in by_name} for name, step in by_name.items()}
    for step in given:
        for later in getattr(step, "before", ()):
            if later in graph:
                graph[later].add(step.name)
    try:
        return [by_name[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        raise LoadError(f"the steps of a call follow each other in a circle: {' → '.join(error.args[1])}") from None
