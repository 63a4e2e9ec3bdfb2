"""The keys of a campus: issued, listed, rotated, renewed, revoked and found. Every change is on disk when it returns."""

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from sqlmodel import col, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.caller import Credential, Key
from campus.errors import KeyRefused
from campus.keys.lookup import TokenLookup
from campus.keys.product import Product
from campus.keys.record import KeyRecord, state_of
from campus.keys.tables import KeyEvent, KeyRow
from campus.keys.token import MARK, PREFIX_LENGTH, Entropy, digest_of, new_token, prefix_of, random_base62
from campus.storage import Storage

OVERLAP = timedelta(hours=24)
"""How long a rotated key is good beside the one that takes its place."""
ID_LENGTH = 12
SHOWN_LENGTH = len("key_") + ID_LENGTH
SHORTEST_PREFIX = 4
log = logging.getLogger(__name__)


class KeyRing:
    """The keys in the house's storage; one per process.

    `name` is what an operator has of a key: its id, or the first four or more characters of its token, with or without
    `campus_live_`. `by` is who asks, for the log of changes. What cannot be done is a KeyRefused, and nothing is written.
    """

    def __init__(
        self,
        storage: Storage,
        products: Mapping[str, Product],
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        self._storage = storage
        self._products = products
        self._now = now
        self._entropy = entropy
        self._lookup = TokenLookup(storage, now=now, monotonic=monotonic)

    def peek(self, token: str) -> Credential | None:
        """What is known of the token without a wait; None: await `find`."""
        return self._lookup.peek(token)

    async def find(self, token: str) -> Credential:
        """Whether the token is valid, unknown, expired or revoked, and its key; a change elsewhere shows within 5 s."""
        return await self._lookup.find(token)

    async def flush_last_used(self) -> None:
        """Write down when keys were last used: call it every 60 s and at the end."""
        await self._lookup.flush_last_used()

    async def get(self, key_id: str) -> Key | None:
        """The key of this id, whatever its state; None when there is none."""
        async with self._storage.read() as session:
            row = await session.get(KeyRow, key_id)
            return row.key() if row else None

    async def end_of(self, lineage: str) -> datetime | None:
        """When the last key of a lineage ends or ended; None when none is left that was not revoked."""
        async with self._storage.read() as session:
            ends = await session.exec(
                select(func.max(KeyRow.expires_at)).where(KeyRow.lineage == lineage, col(KeyRow.revoked_at).is_(None))
            )
            return ends.one()

    async def list(self) -> Sequence[KeyRecord]:
        """Every key that was ever issued, the oldest first."""
        now = self._now()
        async with self._storage.read() as session:
            rows = await session.exec(select(KeyRow).order_by(col(KeyRow.issued_at), col(KeyRow.id)))
            return tuple(_record_of(row, now=now) for row in rows)

    async def issue(self, product: str, *, note: str = "", by: str = "operator") -> tuple[Key, str]:
        """Make a key of the product, good from now; also returns its token, which nothing can show again."""
        sold = self._product(product)
        now = self._now()
        row, token = self._new_row(sold.name, sold.scope, issued_at=now, expires_at=sold.term.end(now), note=note)
        key = row.key()
        async with self._storage.write() as session:
            await _save(session, row, "issued", at=now, by=by, detail=f"{sold.name} for {sold.term}")
        log.info("key issued", extra={"key_id": key.id, "product": key.product, "by": by})
        return key, token

    async def rotate(self, name: str, *, by: str = "operator") -> tuple[Key, str]:
        """Put a new token in the place of a valid key, with its lineage, scope and end; the old one is good for 24 h more."""
        async with self._changing(name) as (session, old):
            now = self._now()
            _refuse_ended(old)
            if old.key().has_ended(now):
                raise KeyRefused(f"key {old.id} ended on {_text(old.expires_at)} and cannot be rotated; renew it, or issue a new one")
            new, token = self._new_row(old.product, old.scope, lineage=old.lineage, issued_at=now, expires_at=old.expires_at, note=old.note)
            key = new.key()
            await _save(session, new, "issued", at=now, by=by, detail=f"in the place of {old.id}")
            old.replaced_by = key.id
            old.expires_at = min(old.expires_at, now + OVERLAP)
            await _save(session, old, "rotated", at=now, by=by, detail=f"replaced by {key.id}; good until {_text(old.expires_at)}")
        log.info("key rotated", extra={"key_id": key.id, "lineage": key.lineage, "by": by})
        return key, token

    async def renew(self, name: str, product: str | None = None, *, by: str = "operator") -> Key:
        """Extend a key by a term of its own product, or of another with the same scope: from its end, or from now if later."""
        async with self._changing(name) as (session, row):
            now = self._now()
            _refuse_ended(row)
            sold = self._product(product or row.product)
            if sold.scope != row.scope:
                raise KeyRefused(f"key {row.id} has the scope {row.scope}, and {sold.name} has {sold.scope}; issue a new one")
            row.product = sold.name
            row.expires_at = sold.term.end(max(now, row.expires_at))
            key = row.key()
            await _save(session, row, "renewed", at=now, by=by, detail=f"{sold.name} for {sold.term}; good until {_text(key.expires_at)}")
        log.info("key renewed", extra={"key_id": key.id, "product": key.product, "by": by})
        return key

    async def revoke(self, name: str, *, by: str = "operator") -> Key:
        """End a key for ever, everywhere within 5 s; a key that was revoked before stays as it is."""
        async with self._changing(name) as (session, row):
            key = row.key()
            if row.revoked_at is not None:
                return key
            now = row.revoked_at = self._now()
            await _save(session, row, "revoked", at=now, by=by, detail="")
        log.info("key revoked", extra={"key_id": key.id, "by": by})
        return key

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncIterator[tuple[AsyncSession, KeyRow]]:
        """A transaction on one key, which storage lets no other change meanwhile; what was remembered of it is forgotten."""
        async with self._storage.write() as session:
            row = await _row_named(session, name)
            digest = row.digest
            yield session, row
        self._lookup.forget(digest)

    def _product(self, name: str) -> Product:
        if (product := self._products.get(name)) is not None:
            return product
        there_are = f"there are: {', '.join(sorted(self._products))}" if self._products else "campus.toml has no table [products.NAME]"
        raise KeyRefused(f"no product {name!r} is for sale; {there_are}")

    def _new_row(
        self, product: str, scope: str, *, issued_at: datetime, expires_at: datetime, note: str, lineage: str | None = None
    ) -> tuple[KeyRow, str]:
        token = new_token(self._entropy)
        key_id = f"key_{random_base62(ID_LENGTH, self._entropy)}"
        row = KeyRow(
            id=key_id,
            digest=digest_of(token),
            prefix=prefix_of(token),
            product=product,
            scope=scope,
            lineage=lineage or key_id,
            issued_at=issued_at,
            expires_at=expires_at,
            note=note,
        )
        return row, token


async def _row_named(session: AsyncSession, name: str) -> KeyRow:
    """The one row that the name means."""
    start = name.removeprefix(MARK)[:PREFIX_LENGTH]
    means = col(KeyRow.id) == name
    if len(start) >= SHORTEST_PREFIX:
        means = or_(means, func.substr(col(KeyRow.prefix), 1, len(start)) == start)
    rows = (await session.exec(select(KeyRow).where(means).order_by(col(KeyRow.id)))).all()
    if not rows:
        # not all of it: it may be the token of a key elsewhere
        raise KeyRefused(f"no key {name[:SHOWN_LENGTH]!r}; `campus key list` shows the ids and the first characters of every key")
    if len(rows) > 1:
        raise KeyRefused(f"{start!r} begins {len(rows)} keys: {', '.join(row.id for row in rows)}; give the id of one of them")
    return rows[0]


async def _save(session: AsyncSession, row: KeyRow, action: str, *, at: datetime, by: str, detail: str) -> None:
    """Write the row, then the line of the log that names it."""
    session.add(row)
    await session.flush()
    session.add(KeyEvent(at=at, key_id=row.id, action=action, by=by, detail=detail))


def _refuse_ended(row: KeyRow) -> None:
    """A key that was revoked, or has another in its place, changes no more."""
    if row.revoked_at is not None:
        raise KeyRefused(f"key {row.id} was revoked on {_text(row.revoked_at)} and cannot be changed; issue a new one")
    if row.replaced_by is not None:
        raise KeyRefused(f"key {row.id} was rotated before; {row.replaced_by} stands in its place")


def _record_of(row: KeyRow, *, now: datetime) -> KeyRecord:
    key = row.key()
    state = state_of(key, revoked_at=row.revoked_at, now=now)
    return KeyRecord(key, row.prefix, state, row.note, row.revoked_at, row.replaced_by, row.last_used_at)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
