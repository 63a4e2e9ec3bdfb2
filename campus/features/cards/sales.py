"""Sales by card, and what follows from Stripe's words: a key is delivered once, or nothing, and taken back where the money is.

    open ──paid──▶ paid ──dispute──▶ disputed ──won──▶ won      open ──over──▶ (deleted)
      └─anything else─▶ unclear       └────────refund────────▶ refunded

Webhooks, the page that a buyer returns to and a job say the same things, in any order and any number of times: each change is made once,
in one transaction with the key and the ledger. A word that no list here knows is noted, and never means that something was paid.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import func, update
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.errors import KeyRefused
from campus.features.cards.stripe_api import ATOMIC_PER_CENT, Checkout, SessionUnknown, Stripe, StripeUnavailable, checkout_of, id_of
from campus.features.cards.tables import CardSale
from campus.features.payments.ledger import Event, LedgerRow
from campus.keys.keyring import KeyRing
from campus.keys.tables import KeySale
from campus.pricing import Price
from campus.secrets import Entropy, random_id, seal, unsealed
from campus.shares import Counts, TokenBuckets
from campus.storage import Storage
from twins import Problem

LASTS = timedelta(hours=1)
"""How long a buyer has to pay; Stripe takes from 30 minutes on."""
SHOWN = timedelta(days=1)
"""How long a key can be shown, from when its purchase began."""
STARTED_PER_MINUTE, STARTED_IN_ALL = 6, 60
ASKED_PER_MINUTE, ASKED_IN_ALL = 12, 240
"""Purchases that begin, and questions to Stripe by browsers that wait for a key: of one network, and in all."""
OPEN_PER_CLIENT, OPEN_IN_ALL = 8, 2_000
RECONCILED = 50  # Sales in one run of the job.
SALE = re.compile(r"card_[0-9A-Za-z]{16}")
EVENTS = (
    *("checkout.session.completed", "checkout.session.async_payment_succeeded", "checkout.session.async_payment_failed"),
    *("checkout.session.expired", "charge.refunded", "charge.dispute.created", "charge.dispute.updated"),
    "charge.dispute.closed",
)
WITHDRAWN = {"needs_response", "under_review", "lost", "appeal_needs_response", "appeal_under_review"}
HARMLESS = {"warning_needs_response", "warning_under_review", "warning_closed", "prevented"}
"""A dispute in the first takes the money from the seller; the others are inquiries, and disputes that were prevented."""
VERDICTS: Mapping[tuple[str | None, str | None], Literal["paid", "pending", "open", "over"]] = {
    ("complete", "paid"): "paid",
    ("complete", "unpaid"): "pending",
    ("open", "unpaid"): "open",
    ("expired", "unpaid"): "over",
}
"""What a session says of its payment by its two words; `pending`, that a payment was begun that takes days. All else is unclear."""
log = logging.getLogger(__name__)


def differences(checkout: Checkout, sale: CardSale) -> str:
    """What of a paid session is not as it was sold, for the operator; empty if all is."""
    sold = {"amount": sale.amount // ATOMIC_PER_CENT, "currency": "usd", "livemode": sale.livemode, "id": sale.session or checkout.id}
    said = {name: getattr(checkout, name) for name in sold}
    return ", ".join(f"{name} is {said[name]!r} instead of {sold[name]!r}" for name in sold if said[name] != sold[name])


class Bounds:
    """How often something may be done in a minute: by one client, and by all together."""

    def __init__(self, of_client: int, in_all: int) -> None:
        self._buckets = TokenBuckets(of_client), TokenBuckets(in_all)

    def seconds(self, client: str, now: datetime) -> int:
        """How long to wait; 0 if it may be done, which counts."""
        for buckets, name in zip(self._buckets, (client, ""), strict=True):
            if not buckets.take(name, now):
                return buckets.seconds_left(name, now)
        return 0


@dataclass(frozen=True, kw_only=True)
class CardSales:
    storage: Storage
    keys: KeyRing
    stripe: Stripe
    now: Callable[[], datetime]
    entropy: Entropy
    started: Bounds = field(default_factory=lambda: Bounds(STARTED_PER_MINUTE, STARTED_IN_ALL))
    asked: Bounds = field(default_factory=lambda: Bounds(ASKED_PER_MINUTE, ASKED_IN_ALL))

    async def find(self, sale_id: str) -> CardSale | None:
        async with self.storage.read() as session:
            return await session.get(CardSale, sale_id)

    async def begin(self, product: str, price: str, *, renews: str | None, client: str, secret: str) -> CardSale:
        """A sale and the key that it will deliver, sealed under the secret. Problem 429 or 409."""
        now = self.now()
        if seconds := self.started.seconds(client, now):
            raise _too_many(seconds)
        sale_id = random_id("card", self.entropy)
        async with self.storage.write() as session:
            await self._check_room(session, client)
            try:
                sold = await self.keys.sell_in(session, product, payment=sale_id, by="card", renew=renews)
            except KeyRefused as refused:
                raise Problem(409, "key_not_sold", f"{refused}. Nothing was charged.") from None
            sale = CardSale(
                id=sale_id,
                product=product,
                renews=renews,
                amount=Price.parse(price).atomic,
                livemode=self.stripe.is_live,
                state="open",
                client=client,
                sealed=seal((sold.token or "").encode(), secret, entropy=self.entropy, context=sale_id.encode()),
                started_at=now,
                ends_at=now + LASTS,
            )
            session.add(sale)
        return sale

    async def _check_room(self, session: AsyncSession, client: str) -> None:
        mine = CardSale.state == "open", CardSale.livemode == self.stripe.is_live  # those of the other mode never end
        opened = select(CardSale.client, func.count()).where(*mine).group_by(col(CardSale.client))
        counts = Counts[str](limit=OPEN_IN_ALL, per_holder=OPEN_PER_CLIENT)
        for name, count in (await session.exec(opened)).all():
            counts.add(name or "", count)
        if not counts.has_room(client):
            raise _too_many(int(LASTS.total_seconds()))

    async def lead(self, sale: CardSale, *, title: str, description: str, back: str) -> CardSale:
        """The sale with the address at which it is paid; `back` is its page. StripeUnavailable if there is none: nothing is left of it."""
        try:
            checkout = await self.stripe.opened(sale, title=title, description=description, back=back)
        except StripeUnavailable:
            async with self.storage.write() as session:
                await self._end(session, await session.get_one(CardSale, sale.id))
            raise
        async with self.storage.write() as session:
            row = await session.get_one(CardSale, sale.id)
            row.session, row.url = checkout.id, checkout.url
        return row

    async def _end(self, session: AsyncSession, sale: CardSale) -> None:
        await self.keys.sales.drop(session, sale.id)
        await session.delete(sale)

    def token_for(self, sale: CardSale, secrets: Sequence[str]) -> str | None:
        """What is shown to the browser that buys, by its secrets, and to no other, which gets None; empty for a renewal."""
        if sale.sealed is None or sale.started_at + SHOWN <= self.now():
            return None
        token = unsealed(sale.sealed, secrets, context=sale.id.encode())
        return None if token is None else token.decode()

    async def ask(self, sale: CardSale) -> CardSale | None:
        """The sale after Stripe was asked about it, unless it was too often: a webhook may be late. None once it ended unpaid."""
        if sale.state != "open" or sale.session is None or self.asked.seconds(sale.client or "", self.now()):
            return sale
        await self.settle(await self.stripe.session(sale.session))
        return await self.find(sale.id)

    async def settle(self, checkout: Checkout, *, failed: bool = False) -> None:
        """Do what a session says of its sale; `failed`: its payment, which took days, came to nothing."""
        if checkout.sale is None or not SALE.fullmatch(checkout.sale):
            return
        said = VERDICTS.get((checkout.status, checkout.payment_status), "unclear")
        verdict = "over" if failed and checkout.payment_status == "unpaid" else said
        async with self.storage.write() as session:
            sale = await session.get(CardSale, checkout.sale)
            if checkout.seller != self.stripe.seller and not (sale and sale.session == checkout.id):  # public_url may have changed since
                return  # of another shop of the account
            if sale is None and verdict == "paid":
                session.add(sale := self._lost(checkout))
                self._note(session, sale, "unknown", "Stripe reports it as paid, and it is not in this database")
            elif sale is None or sale.state not in ("open", "unclear") or await session.get(KeySale, sale.id) is None:
                return  # concluded; or lost, and there is no key to deliver
            elif verdict == "paid":
                await self._paid(session, sale, checkout)
            elif verdict == "over" and sale.state == "open":
                await self._end(session, sale)
            elif verdict == "unclear":
                self._unclear(session, sale, f"Stripe says {checkout.status!r} and {checkout.payment_status!r}")

    async def _paid(self, session: AsyncSession, sale: CardSale, checkout: Checkout) -> None:
        sale.intent = checkout.intent
        if reason := differences(checkout, sale) or await self.keys.sales.objection(session, sale.id):
            self._unclear(session, sale, f"it was paid, and {reason}")
            return
        await self.keys.sales.deliver(session, sale.id)
        sale.state, sale.reason, sale.client, sale.url, sale.paid_at = "paid", "", None, None, self.now()
        self._note(session, sale, "settled")

    def _unclear(self, session: AsyncSession, sale: CardSale, reason: str) -> None:
        if sale.state == "open":
            self._note(session, sale, "unknown", reason)
        sale.state, sale.reason, sale.client = "unclear", reason, None

    def _lost(self, checkout: Checkout) -> CardSale:
        now, amount = self.now(), (checkout.amount or 0) * ATOMIC_PER_CENT
        about: Any = {"id": checkout.sale, "product": "unknown", "amount": amount, "livemode": checkout.livemode is True}
        told = "Stripe reports it as paid, and it is not in this database: was an older backup restored?"
        return CardSale(**about, state="unclear", intent=checkout.intent, started_at=now, ends_at=now, reason=told)

    def _note(self, session: AsyncSession, sale: CardSale, event: Event, detail: str = "", *, amount: int | None = None) -> None:
        """An entry in the ledger; without an amount that of the whole sale, less what was refunded."""
        amount = sale.amount - sale.refunded if amount is None else amount
        about: Any = {"payment_id": sale.id, "building": "cards", "tool": sale.product, "frame": "http", "transaction": sale.intent}
        money: Any = {"network": "card" if sale.livemode else "card-test", "asset": "usd", "amount": amount}
        session.add(LedgerRow(at=self.now(), event=event, detail=detail, **about, **money))
        log.info("card sale %s", event, extra={"sale": sale.id, "product": sale.product, "detail": detail})

    async def hear(self, event: Mapping[str, Any]) -> bool:
        """Do what an event of Stripe says; False for one that campus does not use, or of the other mode."""
        kind, thing = event.get("type"), (event.get("data") or {}).get("object") or {}
        if kind not in EVENTS or event.get("livemode") is not self.stripe.is_live:
            return False
        if kind.startswith("checkout."):
            await self.settle(checkout_of(thing), failed=kind.endswith("failed"))
        elif (intent := id_of(thing.get("payment_intent"))) is not None:
            change = self._refunded if kind == "charge.refunded" else self._disputed
            await self._correct(intent, thing, change)
        return True

    async def _correct(
        self, intent: str, thing: Mapping[str, Any], change: Callable[[AsyncSession, CardSale, Mapping[str, Any]], Awaitable[None]]
    ) -> None:
        if not await self._known(intent) and (checkout := await self.stripe.session_of(intent)) is not None:
            await self.settle(checkout)  # what it corrects was not heard yet
        async with self.storage.write() as session:
            sale = (await session.exec(select(CardSale).where(CardSale.intent == intent))).first()
            if sale is not None:
                await change(session, sale, thing)

    async def _known(self, intent: str) -> bool:
        async with self.storage.read() as session:
            return (await session.exec(select(CardSale.id).where(CardSale.intent == intent))).first() is not None

    async def _refunded(self, session: AsyncSession, sale: CardSale, charge: Mapping[str, Any]) -> None:
        refunded = int(charge.get("amount_refunded") or 0) * ATOMIC_PER_CENT
        if refunded <= sale.refunded:
            return
        if sale.state in ("paid", "won"):
            self._note(session, sale, "reversed", "refunded at Stripe")
            if refunded < sale.amount:  # the ledger adds whole events: what is left counts anew
                self._note(session, sale, "settled", "what a refund left", amount=sale.amount - refunded)
        sale.refunded = refunded
        if refunded >= sale.amount and sale.state != "refunded":
            await self.keys.sales.take_back(session, sale.id, why=f"sale {sale.id} was refunded")
            await self.keys.sales.drop(session, sale.id)  # of an unclear one
            sale.state, sale.reason, sale.sealed = "refunded", "", None

    async def _disputed(self, session: AsyncSession, sale: CardSale, dispute: Mapping[str, Any]) -> None:
        status, known = dispute.get("status"), str(dispute.get("id"))
        said = f"dispute {known}: {status}"
        is_new = sale.state != "unclear" and sale.reason != said
        sale.reason = said if is_new else sale.reason
        if status == "won":
            if sale.state == "disputed":
                self._note(session, sale, "settled", "the dispute was won; its key stays ended")
                sale.state = "won"
            sale.dispute = known
        elif status in WITHDRAWN and sale.state in ("paid", "won") and sale.dispute != known:
            self._note(session, sale, "reversed", sale.reason)
            await self.keys.sales.take_back(session, sale.id, why=f"sale {sale.id} is disputed")
            sale.state, sale.sealed = "disputed", None
        elif is_new and status not in WITHDRAWN | HARMLESS:
            self._note(session, sale, "unknown", sale.reason)

    async def reconcile(self) -> bool:
        """Ask Stripe about sales whose time is over, and forget keys that were shown long enough; False if there was nothing to do."""
        now = self.now()
        mine = CardSale.livemode == self.stripe.is_live
        due = select(CardSale).where(CardSale.state == "open", mine, col(CardSale.ends_at) <= now).order_by(col(CardSale.ends_at))
        async with self.storage.write() as session:
            shown = update(CardSale).where(
                col(CardSale.started_at) <= now - SHOWN, col(CardSale.sealed).is_not(None), col(CardSale.state) != "open"
            )
            wiped = (await (await session.connection()).execute(shown.values(sealed=None))).rowcount
            sales = (await session.exec(due.limit(RECONCILED))).all()
            for sale in sales:
                if sale.session is None:  # nobody was ever led to Stripe
                    await self._end(session, sale)
        for sale in sales:
            if sale.session is not None:
                await self._reconcile(sale, sale.session)
        return bool(wiped or sales)

    async def _reconcile(self, sale: CardSale, checkout: str) -> None:
        try:
            await self.settle(await self.stripe.session(checkout))
        except SessionUnknown as unknown:
            async with self.storage.write() as session:
                self._unclear(session, await session.get_one(CardSale, sale.id), str(unknown))

    async def doubtful(self) -> Sequence[CardSale]:
        """The sales that need the operator, of the last month and at most a hundred."""
        recent = col(CardSale.state).in_(["unclear", "won"]), col(CardSale.started_at) > self.now() - timedelta(days=30)
        async with self.storage.read() as session:
            return (await session.exec(select(CardSale).where(*recent, CardSale.livemode == self.stripe.is_live).limit(100))).all()


def _too_many(seconds: int) -> Problem:
    detail = f"Too many purchases were begun and not paid. Nothing was charged; pay one of them, or try again in {seconds} s."
    return Problem(429, "too_many_purchases", detail, headers={"Retry-After": str(seconds)})
