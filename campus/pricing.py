"""What a tool costs: access() and free() as plain data in the tool's `meta`, and the offer that campus makes from it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any, Literal, Protocol, get_args

from campus.failure_rules import NEVER, FailureRule, read_rule

META = "campus"
KeyRule = Literal["opens", "optional", "never"]
USDC_DECIMALS = 6
TASK_SECONDS = 3600  # How long a task may run whose tool has no timeout of its own.
DOLLARS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,15})?(?:e-[0-9]{1,2})?")
"""A decimal that is computed exactly and fits into a database; with an exponent as Python writes a small TOML number."""
MOST_DOLLARS = 10**9  # What a call may cost whose price depends on an argument.


@dataclass(frozen=True, order=True)
class Price:
    """US dollars per call, exact: `Price.parse("0.005")` is 5,000 millionths."""

    atomic: int

    @classmethod
    def parse(cls, text: str) -> "Price":
        """Parse decimal dollars. Raises ValueError for what is not an amount, not above zero, or finer than a millionth."""
        if not DOLLARS.fullmatch(text):
            raise ValueError(f'{text!r} is not a price; write US dollars as a decimal, such as "0.02"')
        atomic = Decimal(text).scaleb(USDC_DECIMALS)
        if not atomic:
            raise ValueError(f"the price {text!r} is not above zero; a free tool has free = true instead of a price")
        if atomic != atomic.to_integral_value():
            raise ValueError(f"the price {text!r} is finer than 0.000001 dollars, the smallest amount that can be paid")
        return cls(int(atomic))

    def __str__(self) -> str:
        sign, (whole, part) = "-" if self.atomic < 0 else "", divmod(abs(self.atomic), 10**USDC_DECIMALS)
        if not part:
            return f"{sign}{whole}"
        return f"{sign}{whole}.{f'{part:06d}'.rstrip('0').ljust(2, '0')}"


@dataclass(frozen=True)
class PerArgument:
    """What a call costs above its base price: `each` for each member of a list that it is sent, or for each one of a whole number."""

    argument: str
    each: Price

    def __str__(self) -> str:
        return f"${self.each} for each of {self.argument}"

    def as_data(self) -> dict[str, str]:
        """As documents and refusals spell it."""
        return {"per": self.argument, "each": str(self.each)}


@dataclass(frozen=True)
class Access:
    """Who may call a tool, as its author or the operator declares. A call costs `price`, and what it adds up to `per` argument."""

    price: Price | None = None
    key: KeyRule = "never"
    scope: str | None = None
    sells: str | None = None
    renews: str | None = None
    ends: str | None = None
    advice: str | None = None
    fails_if: FailureRule | None = None
    is_limited: bool = True  # Whether its calls are counted for [limits].
    per: PerArgument | None = None

    @property
    def is_free(self) -> bool:
        return self.price is None and self.sells is None and self.key != "opens"


FREE = Access()
LOCAL_KEY = Access(
    key="opens",
    advice="It may change something, and nobody declared who may call it: while this campus has no public_url for others, it takes the key"
    " that `campus serve` and `campus dev` print. Its author declares it with free() or access(), the operator in campus.toml.",
)
"""The access of a tool without one that is not annotated read-only, on a campus for its machine alone."""
UNDECLARED = Access(
    key="opens",
    advice="It was added while this service ran, and nobody declared its price: its author does so with free() or access(), the operator in"
    " campus.toml.",
)
"""The access of a tool without one that was added at run time, where other tools of the building declare theirs."""


def access(
    *,
    price: str | Mapping[str, str] | None = None,
    key: KeyRule = "opens",
    scope: str | None = None,
    sells: str | None = None,
    renews: str | None = None,
    ends: str | None = None,
    advice: str | None = None,
) -> dict[str, Any]:
    """Declare what a tool costs: a key, or `price` US dollars per call. Without a price it takes a key only.

    `price={"base": "0.01", "per": "cve_ids", "each": "0.0002"}` adds to the base what each member of a list costs, or each one of a whole
    number, that the tool is called with; without that argument a call costs the base.
    `key="optional"` makes the tool free and offers more to callers with a key. `key="never"` takes payment only.
    `scope` is the key scope that opens it; default: the building's. `sells`, with `key="never"`, names the argument that selects
    a product of campus.toml: a call costs what that product costs, and its answer is a secret. `renews` names the argument with the id of
    a key that is extended instead: campus refuses what cannot be renewed before it reserves a payment. `ends` names the member of the
    answer with the key's end: for a renewal campus sets it to the end that the key had when the payment was charged.
    `advice` is added to the refusal of a call without access: what else a caller must know before it pays.
    """
    read_access(data := {"price": price, "key": key, "scope": scope, "sells": sells, "renews": renews, "ends": ends, "advice": advice})
    return {META: {name: value for name, value in data.items() if value is not None}}


def free(*, limited: bool = True) -> dict[str, Any]:
    """Declare that a tool is free for everyone.

    `limited=False` is for one that bounds its own callers, such as the devices behind one address: [limits] does not count its calls.
    """
    return {META: {"free": True} if limited else {"free": True, "limited": False}}


def read_access(data: Mapping[str, Any]) -> Access:
    """Read what access(), free() or a tool's table in campus.toml declares. Raises ValueError with a sentence if it is inconsistent."""
    fails_if = read_rule(data.get("fails_if", NEVER))
    if data.get("free"):
        if data.get("price") is not None or data.get("key") is not None:
            raise ValueError("a free tool takes neither price nor key; remove them, or remove free")
        return Access(fails_if=fails_if, is_limited=data.get("limited", True))
    key: KeyRule = data.get("key") or "opens"
    if key not in get_args(KeyRule):
        raise ValueError(f"key = {key!r} is unknown; the values are: {', '.join(get_args(KeyRule))}")
    price, per = read_price(data.get("price"))
    sells = data.get("sells")
    if sells is not None and (price is not None or key != "never"):
        raise ValueError('sells needs key = "never" and no price: a call costs what the product costs, and no key opens it')
    if sells is None and (data.get("renews") or data.get("ends")):
        raise ValueError("renews and ends need sells: they say how the tool that sells keys renews one")
    if key == "never" and price is None and sells is None:
        raise ValueError('key = "never" needs a price: payment is then the only way to call the tool')
    if key == "optional" and price is not None:
        raise ValueError('key = "optional" means free, with more for a key; remove the price')
    return Access(price, key, data.get("scope"), sells, data.get("renews"), data.get("ends"), data.get("advice"), fails_if, per=per)


def read_price(said: Any) -> tuple[Price | None, PerArgument | None]:
    """The price of a call, and what an argument adds to it: of a text, or of {base, per, each}. Raises ValueError with a sentence."""
    if said is None or not isinstance(said, Mapping):
        return None if said is None else Price.parse(str(said)), None
    if said.keys() != {"base", "per", "each"}:
        raise ValueError('a price by argument has three members; write { base = "0.01", per = "ARGUMENT", each = "0.0002" }')
    return Price.parse(str(said["base"])), PerArgument(str(said["per"]), Price.parse(str(said["each"])))


def access_of(meta: Mapping[str, Any] | None) -> Access | None:
    """What a tool's `meta` says of its access; None when it says nothing."""
    said = (meta or {}).get(META)
    return None if said is None else read_access(said)


@dataclass(frozen=True)
class Offer:
    """One tool as it is sold here: as its author declared it, overridden by the operator."""

    building: str
    tool: str
    access: Access
    scope: str

    @property
    def price(self) -> Price | None:
        """What a call costs at least; None if it is not sold at a price of its own."""
        return self.access.price

    @property
    def cost(self) -> str:
        """The price in words: $0.02, or $0.01 and $0.0002 for each of cve_ids."""
        return f"${self.price}" if self.access.per is None else f"${self.price} and {self.access.per}"

    @property
    def _per_call(self) -> str:
        return f"${self.price} per call" if self.access.per is None else f"${self.price} per call and {self.access.per}"

    def price_for(self, arguments: Mapping[str, Any]) -> Price | None:
        """What a call with these canonical arguments costs; None as `price`. ValueError for what cannot be counted: see steps.price_of."""
        base, per = self.access.price, self.access.per
        if base is None or per is None or (counted := arguments.get(per.argument)) is None:
            return base
        count = len(counted) if isinstance(counted, list) else counted
        if type(count) is not int:
            raise ValueError("sets the price, and is neither a list nor a whole number")
        if count > (most := (MOST_DOLLARS * 10**USDC_DECIMALS - base.atomic) // per.each.atomic):
            raise ValueError(f"sets a price that nobody can pay; send at most {most}")
        return Price(base.atomic + max(count, 0) * per.each.atomic)

    @property
    def is_sold_per_call(self) -> bool:
        return self.access.price is not None or self.access.sells is not None

    @property
    def is_for_keys_alone(self) -> bool:
        """Whether only a key opens it, such as a tool for what a key owns."""
        return self.access.key == "opens" and not self.is_sold_per_call

    def tier(self, *, per_call: bool, has_credits: bool = False) -> str:
        """In a few words: free, key, $0.02 per call; `per_call` says whether payments are taken here, `has_credits` whether keys do."""
        if self.access.key == "optional":
            return "free, and more with a key"
        if self.access.is_free:
            return "free"
        if self.access.sells and per_call:
            return "the price of the product"
        spent = f", with credits {self._per_call}" if self.price and has_credits and not per_call else ""
        ways = [] if self.access.key == "never" else [f"key{spent}"]
        return " or ".join(ways + ([self._per_call] if self.price and per_call else [])) or "closed: it is sold per call only"

    def needs(self, *, per_call: bool, has_credits: bool = False) -> str:
        """What a call needs, in a sentence; `per_call` and `has_credits` are as for `tier`."""
        if self.access.is_free:
            return f"Free; a key of scope {self.scope} adds more." if self.access.key == "optional" else "Free."
        if per_call and self.access.sells:
            return "Costs the price of the product."
        price = self._per_call if per_call and self.price else ""
        if self.access.key == "never":
            return f"Costs {price}." if price else "Sold per call only, and payments are not available here."
        spent = f"; one with credits spends {self._per_call}" if self.price and has_credits else ""
        return f"Needs a key of scope {self.scope}, or {price}." if price else f"Needs a key of scope {self.scope}{spent}."


class Seller(Protocol):
    """What sells calls that no key opens, in the words of others: made from campus.toml, before anything is opened."""

    by: str  # By what a call is paid for, such as x402.

    def sells(self, offer: Offer) -> bool:
        """Whether a call of the tool can be paid for."""
        ...


def task_seconds(tool: Any) -> int:
    """How long a task of the tool may run; 0 if it never runs as one."""
    return ceil(tool.timeout or TASK_SECONDS) if tool.task_config.supports_tasks() else 0
