"""The products for sale, each a key with a scope for a term; and the keys that payments bought.

A bought key is stored as a sale while the call runs, and delivered by the transaction that settles the payment.
"""

import logging
import re
from calendar import monthrange
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast

from sqlalchemy import delete, event
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.caller import Key
from campus.durations import counted
from campus.errors import KeyRefused
from campus.keys.credits import deposit, withdraw
from campus.keys.repository import ID_TEXT_LENGTH, new_row, refuse_ended, refuse_other_product, refuse_revoked, save
from campus.keys.tables import KeyRow, KeySale
from campus.observability import utc_text
from campus.pricing import Price
from campus.secrets import Entropy
from campus.storage import Storage

BY = "campus"  # Who takes keys back, in the log of changes.
TERM = re.compile(r"([1-9][0-9]{0,3}) (day|month)s?")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """How long a key is valid from its purchase: a number of days of 86,400 seconds, or of calendar months."""

    count: int
    unit: Literal["day", "month"]

    @classmethod
    def parse(cls, text: str) -> "Term":
        """Read "30 days" or "12 months", at most 9,999 of them; anything else raises a ValueError that names both forms."""
        if (match := TERM.fullmatch(text)) is None:
            raise ValueError(f'{text!r} is not a term; write it as "30 days" or "12 months"')
        return cls(int(match[1]), cast(Literal["day", "month"], match[2]))

    def end(self, start: datetime) -> datetime:
        """When a key that is bought at `start`, in UTC, is no longer valid.

        Months keep the day and the time of day. Where the last month is too short, its last day counts:
        one month from 31 January ends on 28 or 29 February.
        """
        return self._moved(start, self.count)

    def start(self, end: datetime) -> datetime:
        """The time whose `end` this is, or up to three days before it where the last month was too short."""
        return self._moved(end, -self.count)

    def _moved(self, moment: datetime, count: int) -> datetime:
        if self.unit == "day":
            return moment + timedelta(days=count)
        years, month = divmod(moment.month - 1 + count, 12)
        year = moment.year + years
        return moment.replace(year=year, month=month + 1, day=min(moment.day, monthrange(year, month + 1)[1]))

    def __str__(self) -> str:
        return counted(self.count, self.unit)


@dataclass(frozen=True, slots=True)
class Product:
    """One table [products.NAME] of campus.toml. `price` and `credits` are US dollars, decimal; `url` is a page where a person buys it."""

    name: str
    scope: str
    price: str
    term: Term
    url: str | None = None
    credits: str | None = None

    @property
    def deposit(self) -> int:
        """What a purchase adds to the balance of the key, in millionths of a dollar."""
        return 0 if self.credits is None else Price.parse(self.credits).atomic

    def __str__(self) -> str:
        """What a key of it is sold with, as its log says: cve for 30 days, $5 of credits."""
        return sold_with(self.name, str(self.term), self.deposit)


@dataclass(frozen=True, slots=True)
class KeySold:
    """What a payment buys: the key as it will be once the payment has settled.

    `token` is what its holder sends; it cannot be shown again. None for a renewal, which keeps the token.
    """

    key: Key
    token: str | None


class KeySales:
    """Sells keys in two steps, so that an unpaid key opens nothing and a paid key is never lost.

    A crash between the two leaves a row, which is delivered or dropped with its payment. `forget` removes a digest from the token
    cache.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], datetime], entropy: Entropy, forget: Callable[[bytes], None]) -> None:
        self._storage = storage
        self._now = now
        self._entropy = entropy
        self._forget = forget

    async def sell(self, product: Product, *, payment: str, by: str, renew: str | None) -> KeySold:
        """Store what the payment buys; a second call with a payment that has not settled replaces the first.

        KeyRefused for a key that cannot be renewed, with this product or at all.
        """
        async with self._storage.write() as session:
            return await self.sell_in(session, product, payment=payment, by=by, renew=renew)

    async def sell_in(self, session: AsyncSession, product: Product, *, payment: str, by: str, renew: str | None) -> KeySold:
        """The same in a transaction of the caller's."""
        now = self._now()
        await _clear(session, payment)
        if renew is None:
            sale, sold = self._new(product, payment=payment, by=by, now=now)
        else:
            sale, sold = await _renewal(session, product, renew, payment=payment, by=by, now=now)
        session.add(sale)
        return sold

    async def check_renewal(self, product: Product, key_id: str) -> None:
        """KeyRefused for a key that cannot be renewed, with this product or at all."""
        async with self._storage.read() as session:
            await _renewable(session, product, key_id)

    async def end_of_renewal(self, payment: str) -> datetime | None:
        """The end that a key had when this payment renewed it; None of any other payment."""
        async with self._storage.read() as session:
            sale = await session.get(KeySale, payment)
            return sale.ends_at if sale is not None and sale.action == "renew" else None

    async def objection(self, session: AsyncSession, payment: str) -> str | None:
        """Why what the payment would buy cannot be delivered any more; None if it can."""
        sale = await session.get(KeySale, payment)
        if sale is None or sale.action == "new" or sale.delivered_at is not None:
            return None
        try:
            refuse_revoked(await _heir(session, sale.key_id))
        except KeyRefused as refused:
            return str(refused)
        return None

    async def deliver(self, session: AsyncSession, payment: str) -> None:
        """Deliver what the payment bought; once, however often it is called."""
        sale = await session.get(KeySale, payment)
        if sale is None or sale.delivered_at is not None:
            return
        now = sale.delivered_at = self._now()
        row, action = (_issued(sale), "issued") if sale.action == "new" else (await _renewed(session, sale), "renewed")
        sale.ends_at = row.expires_at
        sold = sold_with(sale.product, sale.term, sale.credits)
        detail = f"{sold}; good until {utc_text(row.expires_at)}; payment {payment}"
        await deposit(session, sale.lineage, sale.credits)
        await save(session, row, action, at=now, by=sale.by, detail=detail, change=sale.credits)
        known = {"key_id": row.id, "product": row.product, "by": sale.by, "payment": payment}
        self._after_commit(session, [row.digest], f"key {action}", known)

    async def drop(self, session: AsyncSession, payment: str) -> None:
        """Delete what the payment would have bought; a delivered sale stays."""
        unsettled = col(KeySale.payment) == payment, col(KeySale.delivered_at).is_(None)
        await (await session.connection()).execute(delete(KeySale).where(*unsettled))

    async def take_back(self, session: AsyncSession, payment: str, *, why: str | None = None) -> None:
        """Revoke the key that the payment bought, or subtract the time, because the payment is not charged after all. Call it once.

        The successor of a rotated key is revoked too. A bought key that another payment extended keeps that payment's time. Credits that
        it bought are subtracted; those that were spent are written off, in an event of their own.
        """
        sale = await session.get(KeySale, payment)
        if sale is None or sale.delivered_at is None:
            return
        now = self._now()
        why = why or f"payment {payment} is not on the chain"
        rows = [await session.get_one(KeyRow, sale.key_id)]
        while (heir := rows[-1].replaced_by) is not None:
            rows.append(await session.get_one(KeyRow, heir))
        await session.delete(sale)
        if sale.action == "new" and not await _is_extended(session, rows):
            for row in rows:
                row.revoked_at = row.revoked_at or now
                await save(session, row, "revoked", at=now, by=BY, detail=why, change=-sale.credits if row is rows[-1] else 0)
        else:
            rows = rows[-1:]
            rows[0].expires_at = Term.parse(sale.term).start(rows[0].expires_at)
            detail = f"good until {utc_text(rows[0].expires_at)}; {why}"
            await save(session, rows[0], "shortened", at=now, by=BY, detail=detail, change=-sale.credits)
        if spent := sale.credits - await withdraw(session, sale.lineage, sale.credits):
            await save(session, rows[-1], "written off", at=now, by=BY, detail=f"credits that were spent; {why}", change=spent)
        self._after_commit(session, [row.digest for row in rows], "key taken back", {"key_id": sale.key_id, "payment": payment})

    def _after_commit(self, session: AsyncSession, digests: Sequence[bytes], said: str, known: Mapping[str, str]) -> None:
        """Remove the keys from the token cache after the commit; a read before it would cache the key as it was."""

        def committed(_: object) -> None:
            for digest in digests:
                self._forget(digest)
            log.info(said, extra=dict(known))

        event.listen(session.sync_session, "after_commit", committed, once=True)

    def _new(self, product: Product, *, payment: str, by: str, now: datetime) -> tuple[KeySale, KeySold]:
        end = product.term.end(now)
        row, token = new_row(product.name, product.scope, issued_at=now, expires_at=end, note="", entropy=self._entropy)
        sale = _sale_of("new", row, product, payment=payment, by=by, now=now)
        return sale, KeySold(row.key(), token)


def sold_with(product: str, term: str, amount: int) -> str:
    return f"{product} for {term}" + (f", ${Price(amount)} of credits" if amount else "")


async def _is_extended(session: AsyncSession, rows: Sequence[KeyRow]) -> bool:
    renewals = KeySale.action == "renew", col(KeySale.key_id).in_([row.id for row in rows]), col(KeySale.delivered_at).is_not(None)
    return (await session.exec(select(KeySale.payment).where(*renewals))).first() is not None


async def _clear(session: AsyncSession, payment: str) -> None:
    earlier = await session.get(KeySale, payment)
    if earlier is None:
        return
    if earlier.delivered_at is not None:
        raise KeyRefused(f"payment {payment} bought key {earlier.key_id} before, and buys no other")
    await session.delete(earlier)
    await session.flush()


async def _renewal(
    session: AsyncSession, product: Product, key_id: str, *, payment: str, by: str, now: datetime
) -> tuple[KeySale, KeySold]:
    row = await _renewable(session, product, key_id)
    sale = _sale_of("renew", row, product, payment=payment, by=by, now=now)
    end = product.term.end(max(now, row.expires_at))
    return sale, KeySold(Key(row.id, product.name, row.scope, row.lineage, row.issued_at, end), None)


async def _renewable(session: AsyncSession, product: Product, key_id: str) -> KeyRow:
    """The key of this id, if the product renews it; KeyRefused otherwise."""
    row = await session.get(KeyRow, key_id)
    if row is None:
        raise KeyRefused(f"no key {key_id[:ID_TEXT_LENGTH]!r}; the id of a key is not the key itself: it begins with key_")
    refuse_ended(row)
    refuse_other_product(row, product=product.name, scope=product.scope)
    return row


def _sale_of(action: str, row: KeyRow, product: Product, *, payment: str, by: str, now: datetime) -> KeySale:
    return KeySale(
        payment=payment,
        action=action,
        key_id=row.id,
        digest=row.digest,
        prefix=row.prefix,
        product=product.name,
        scope=row.scope,
        lineage=row.lineage,
        term=str(product.term),
        credits=product.deposit,
        by=by,
        started_at=now,
    )


def _issued(sale: KeySale) -> KeyRow:
    return KeyRow(
        id=sale.key_id,
        digest=sale.digest,
        prefix=sale.prefix,
        product=sale.product,
        scope=sale.scope,
        lineage=sale.lineage,
        issued_at=sale.started_at,
        expires_at=Term.parse(sale.term).end(sale.started_at),
        note=f"payment {sale.payment}",
    )


async def _renewed(session: AsyncSession, sale: KeySale) -> KeyRow:
    """The key with its new end; when it was rotated since the call, the key that replaced it, because the time is paid for."""
    row = await _heir(session, sale.key_id)
    row.expires_at = Term.parse(sale.term).end(max(sale.started_at, row.expires_at))
    return row


async def _heir(session: AsyncSession, key_id: str) -> KeyRow:
    row = await session.get_one(KeyRow, key_id)
    while row.replaced_by is not None:
        row = await session.get_one(KeyRow, row.replaced_by)
    return row
