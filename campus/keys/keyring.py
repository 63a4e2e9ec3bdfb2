"""The keys of a campus: issued, listed, rotated, renewed, revoked, sold and found; and what a building may do with them.

A change is on disk when its method returns.
"""

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from sqlmodel.ext.asyncio.session import AsyncSession

from campus.caller import Credential, Key
from campus.errors import KeyRefused
from campus.keys.credits import deposit, withdraw
from campus.keys.makers import Delegates, Maker, Makers
from campus.keys.repository import (
    KeyRecord,
    ends_of,
    new_row,
    record_of,
    refuse_ended,
    refuse_other_product,
    replacement_of,
    row_named,
    rows_by_age,
    save,
)
from campus.keys.sales import KeySales, KeySold, Product
from campus.keys.tables import CreditAccount, KeyRow
from campus.keys.token_cache import TokenCache
from campus.observability import utc_text
from campus.pricing import Price
from campus.secrets import Entropy
from campus.storage import Storage, in_snapshot

OVERLAP = timedelta(hours=24)  # How long a rotated key stays valid together with the key that replaces it.
log = logging.getLogger(__name__)


class IssuedKey(NamedTuple):
    """A key that was issued, and its token, which cannot be shown again."""

    key: Key
    token: str


class KeyRing:
    """The keys in campus's own database; one object per process.

    `name` is a key's id, or four or more characters of the beginning of its token, with or without `campus_live_`. `by` is who
    asks, for the log of changes. A method that cannot do its work raises KeyRefused and writes nothing.
    """

    def __init__(
        self,
        storage: Storage,
        products: Mapping[str, Product],
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        entropy: Entropy = secrets.token_bytes,
        delegates: Sequence[Delegates] = (),
    ) -> None:
        self._storage = storage
        self._products = products
        self._now = now
        self._entropy = entropy
        self.tokens = TokenCache(storage, now=now, monotonic=monotonic)
        """Finds the key of each call's token; a process that serves has it `follow` the keys, and flush their last use."""
        self.makers = Makers(storage, monotonic=monotonic, delegates=delegates)
        """Finds whether the key or the client that made something may still."""
        self.sales = KeySales(storage, now=now, entropy=entropy, forget=self._forget)
        """Delivers, drops and takes back what payments buy."""

    async def get(self, key_id: str) -> Key | None:
        async with self._storage.read() as session:
            row = await session.get(KeyRow, key_id)
            return row.key() if row else None

    async def ends_of(self, lineages: Sequence[str]) -> Mapping[str, datetime]:
        """When the last key of each lineage ends or ended; lineages all of whose keys were revoked are left out."""
        return await in_snapshot(self._storage, partial(ends_of, lineages=lineages))

    async def named(self, name: str) -> Key:
        async with self._storage.read() as session:
            return (await row_named(session, name)).key()

    async def list(self, *, after: KeyRecord | None = None, limit: int | None = None, like: str = "") -> Sequence[KeyRecord]:
        """All keys ever issued that `like` finds, the oldest first; or a page of at most `limit` keys that come after one."""
        now = self._now()
        async with self._storage.read() as session:
            return tuple(record_of(row, now=now) for row in await rows_by_age(session, after=after, limit=limit, like=like))

    async def issue(self, product: str, *, note: str = "", by: str = "operator") -> IssuedKey:
        sold = self._product(product)
        now = self._now()
        row, token = new_row(sold.name, sold.scope, issued_at=now, expires_at=sold.term.end(now), note=note, entropy=self._entropy)
        key = row.key()
        async with self._storage.write() as session:
            await deposit(session, key.lineage, sold.deposit)
            await save(session, row, "issued", at=now, by=by, detail=str(sold), change=sold.deposit)
        log.info("key issued", extra={"key_id": key.id, "product": key.product, "by": by})
        return IssuedKey(key, token)

    async def rotate(self, name: str, *, by: str = "operator") -> IssuedKey:
        """Replace a valid key by a new one with its lineage, scope and end; the old one stays valid for 24 h more."""
        async with self._changing(name) as (session, old):
            now = self._now()
            refuse_ended(old)
            if old.key().has_ended(now):
                raise KeyRefused(f"key {old.id} ended on {utc_text(old.expires_at)} and cannot be rotated; renew it, or issue a new one")
            new, token = replacement_of(old, issued_at=now, entropy=self._entropy)
            key = new.key()
            await save(session, new, "issued", at=now, by=by, detail=f"in the place of {old.id}")
            old.replaced_by = key.id
            old.expires_at = min(old.expires_at, now + OVERLAP)
            await save(session, old, "rotated", at=now, by=by, detail=f"replaced by {key.id}; good until {utc_text(old.expires_at)}")
        log.info("key rotated", extra={"key_id": key.id, "lineage": key.lineage, "by": by})
        return IssuedKey(key, token)

    async def renew(self, name: str, *, by: str = "operator") -> Key:
        async with self._changing(name) as (session, row):
            now = self._now()
            refuse_ended(row)
            sold = self._product(row.product)
            refuse_other_product(row, product=sold.name, scope=sold.scope)
            row.expires_at = sold.term.end(max(now, row.expires_at))
            key = row.key()
            await deposit(session, key.lineage, sold.deposit)
            detail = f"{sold}; good until {utc_text(key.expires_at)}"
            await save(session, row, "renewed", at=now, by=by, detail=detail, change=sold.deposit)
        log.info("key renewed", extra={"key_id": key.id, "product": key.product, "by": by})
        return key

    async def revoke(self, name: str, *, by: str = "operator") -> Key:
        """End a key for ever, in every process within 5 s; a key that was revoked before stays as it is."""
        async with self._changing(name) as (session, row):
            key = row.key()
            if row.revoked_at is not None:
                return key
            now = row.revoked_at = self._now()
            await save(session, row, "revoked", at=now, by=by, detail="")
        log.info("key revoked", extra={"key_id": key.id, "by": by})
        return key

    async def correct(self, name: str, amount: int, *, why: str, by: str = "operator") -> Key:
        """Add millionths of a dollar to the credits of a key's lineage, or subtract them where the amount is negative."""
        async with self._changing(name) as (session, row):
            key = row.key()
            product = self._products.get(row.product)
            if (product is None and await session.get(CreditAccount, row.lineage) is None) or (product and product.credits is None):
                raise KeyRefused(f"key {row.id} is of {row.product}, whose calls cost no credits: [products.{row.product}] has none")
            await deposit(session, key.lineage, max(amount, 0))
            if amount < 0 and (there := await withdraw(session, key.lineage, -amount)) < -amount:
                raise KeyRefused(f"key {row.id} has ${Price(there)} left, and ${Price(-amount)} cannot be taken from it")
            await save(session, row, "corrected", at=self._now(), by=by, detail=why, change=amount)
        log.info("credits corrected", extra={"key_id": key.id, "amount": str(Price(amount)), "by": by})
        return key

    async def sell(self, product: str, *, payment: str, by: str, renew: str | None = None) -> KeySold:
        """Store what a payment buys: a new key, or more time for the key with the id `renew`. It takes effect with `deliver`."""
        return await self.sales.sell(self._product(product), payment=payment, by=by, renew=renew)

    async def sell_in(self, session: AsyncSession, product: str, *, payment: str, by: str, renew: str | None) -> KeySold:
        """The same in a transaction of the caller's."""
        return await self.sales.sell_in(session, self._product(product), payment=payment, by=by, renew=renew)

    async def check_renewal(self, product: str, key_id: str) -> None:
        """KeyRefused if the product cannot renew the key of this id."""
        await self.sales.check_renewal(self._product(product), key_id)

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncIterator[tuple[AsyncSession, KeyRow]]:
        """A transaction on one key, which cannot change elsewhere until it ends; its token leaves the cache."""
        async with self._storage.write() as session:
            row = await row_named(session, name)
            digest = row.digest
            yield session, row
        self._forget(digest)

    def _forget(self, digest: bytes) -> None:
        self.tokens.forget(digest)
        self.makers.forget()

    def _product(self, name: str) -> Product:
        if (product := self._products.get(name)) is not None:
            return product
        known = f"the products are: {', '.join(sorted(self._products))}" if self._products else "campus.toml has no table [products.NAME]"
        raise KeyRefused(f"no product {name!r} is for sale; {known}")


class BuildingKeys:
    """The keys as one building sees them; `may_sell`: its table in campus.toml has `grants = ["keys"]`."""

    def __init__(self, ring: KeyRing, *, building: str, may_sell: bool) -> None:
        self._ring = ring
        self._building = building
        self._may_sell = may_sell

    async def find(self, token: str) -> Credential:
        """Whether a token is valid, unknown, expired or revoked, and its key; a change by another process shows within 5 s."""
        return await self._ring.tokens.find(token)

    async def get(self, key_id: str) -> Key | None:
        return await self._ring.get(key_id)

    async def ends_of(self, lineages: Sequence[str]) -> Mapping[str, datetime]:
        """When the last key of each lineage ends or ended; lineages all of whose keys were revoked are left out."""
        return await self._ring.ends_of(lineages)

    async def maker(self, maker: str) -> Maker:
        """The key or client that made something, by the `Caller.maker` that was stored; a change by another process shows within 5 s."""
        return await self._ring.makers.find(maker)

    async def makers(self, makers: Collection[str]) -> Mapping[str, Maker]:
        return await self._ring.makers.all_of(makers)

    async def check_renewal(self, product: str, key_id: str) -> None:
        """KeyRefused if the key of this id cannot be renewed with the product: another product is another key."""
        await self._ring.check_renewal(product, key_id)

    async def end_of_renewal(self, payment: str) -> datetime | None:
        """The end that a key had when this payment renewed it; None of any other payment."""
        return await self._ring.sales.end_of_renewal(payment)

    async def sell(self, product: str, *, payment: str, renew: str | None = None) -> KeySold:
        """Sell what a paid call buys: a new key of the product, or its term for the key with the id `renew`.

        `payment` is `Caller.payment`. The sale takes effect when that payment settles: until then the token is unknown, and a
        renewed key ends as before. When the payment is released, the sale is dropped. KeyRefused says why nothing can be sold: no
        grant, no such product, or a key that cannot be renewed because it was revoked or rotated, is of another product or unknown.
        """
        if not self._may_sell:
            table = f"[buildings.{self._building}]"
            raise KeyRefused(f'{self._building} may not sell keys; write grants = ["keys"] into {table} of campus.toml')
        return await self._ring.sell(product, payment=payment, renew=renew, by=self._building)
