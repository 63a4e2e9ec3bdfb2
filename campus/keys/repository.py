"""Rows of keys: made, found by an id or the beginning of a token, saved with a log entry, and shown to operators."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, case, true
from sqlalchemy import select as select_columns
from sqlmodel import col, func, or_, select, tuple_
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.caller import Key
from campus.errors import KeyRefused
from campus.keys.tables import KeyEvent, KeyRow
from campus.keys.tokens import SHOWN_LENGTH, START, TOKEN_LENGTH, new_token, prefix_of
from campus.observability import utc_text
from campus.secrets import Entropy, digest_of, random_base62
from campus.storage import Storage, among
from campus.storage.tables import CoreTables

ID_LENGTH = 12
ID_TEXT_LENGTH = len("key_") + ID_LENGTH
SHORTEST_PREFIX = 4

KEYS = CoreTables.metadata.tables["keys"]
KeyState = Literal["valid", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key as `campus key list` shows it, with everything that the operator may know.

    `prefix` is the first 12 of the token's random characters. `replaced_by` is the id of the key that a rotation made in its
    place; the old one stays valid until its `expires_at`. `last_used_at` may be a minute late.
    """

    key: Key
    prefix: str
    state: KeyState
    note: str
    revoked_at: datetime | None
    replaced_by: str | None
    last_used_at: datetime | None


class NewKey(NamedTuple):
    row: KeyRow
    token: str


class KeyCounts(NamedTuple):
    valid: int
    ending: int
    expired: int
    revoked: int


def record_of(row: KeyRow, *, now: datetime) -> KeyRecord:
    key = row.key()
    return KeyRecord(key, row.prefix, state_of(row, now=now), row.note, row.revoked_at, row.replaced_by, row.last_used_at)


def state_of(row: KeyRow, *, now: datetime) -> KeyState:
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.key().has_ended(now) else "valid"


def new_row(
    product: str,
    scope: str,
    *,
    issued_at: datetime,
    expires_at: datetime,
    note: str,
    entropy: Entropy,
    lineage: str | None = None,
) -> NewKey:
    """A new key; without a lineage it begins a new one."""
    token = new_token(entropy)
    key_id = f"key_{random_base62(ID_LENGTH, entropy)}"
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
    return NewKey(row, token)


def replacement_of(old: KeyRow, *, issued_at: datetime, entropy: Entropy) -> NewKey:
    return new_row(
        old.product, old.scope, lineage=old.lineage, issued_at=issued_at, expires_at=old.expires_at, note=old.note, entropy=entropy
    )


async def rows_by_age(session: AsyncSession, *, after: KeyRecord | None, limit: int | None, like: str = "") -> Iterable[KeyRow]:
    order = col(KeyRow.issued_at), col(KeyRow.id)
    statement = select(KeyRow).where(_is_found(like)).order_by(*order).limit(limit)
    if after is not None:
        statement = statement.where(tuple_(*order) > tuple_(after.key.issued_at, after.key.id))
    return await session.exec(statement)


async def newest_keys(storage: Storage, *, before: str | None, limit: int, like: str, now: datetime) -> Sequence[KeyRecord]:
    order = col(KeyRow.issued_at), col(KeyRow.id)
    statement = select(KeyRow).where(_is_found(like)).order_by(*(column.desc() for column in order)).limit(limit)
    async with storage.read() as session:
        if before is not None and (last := await session.get(KeyRow, before)) is not None:
            statement = statement.where(tuple_(*order) < tuple_(last.issued_at, last.id))
        return [record_of(row, now=now) for row in await session.exec(statement)]


async def ending_keys(storage: Storage, *, now: datetime, within: timedelta, limit: int) -> Sequence[KeyRecord]:
    ends = col(KeyRow.expires_at)
    soon = (
        select(KeyRow).where(col(KeyRow.revoked_at).is_(None), ends > now, ends <= now + within).order_by(ends, col(KeyRow.id)).limit(limit)
    )
    async with storage.read() as session:
        return [record_of(row, now=now) for row in await session.exec(soon)]


def _is_found(like: str) -> ColumnElement[bool]:
    """Whether a key begins as the token `like`; of any other text, whether the key's id, beginning, product or note contain it."""
    if like.startswith(START):
        start = prefix_of(like)
        return func.substr(col(KeyRow.prefix), 1, len(start)) == start
    texts = (KeyRow.id, KeyRow.prefix, KeyRow.product, KeyRow.note)
    return or_(*(col(text).icontains(like, autoescape=True) for text in texts)) if like else true()


async def count_keys(storage: Storage, *, now: datetime, within: timedelta) -> KeyCounts:
    live = col(KeyRow.revoked_at).is_(None)
    ends = col(KeyRow.expires_at)
    conditions = (live & (ends > now), live & (ends > now) & (ends <= now + within), live & (ends <= now), ~live)
    statement = select_columns(*(func.count(case((condition, 1))) for condition in conditions))
    async with storage.read() as session:
        return KeyCounts(*map(int, (await (await session.connection()).execute(statement)).one()))


async def row_named(session: AsyncSession, name: str) -> KeyRow:
    """The one row that an id, a token or its beginning names; KeyRefused when there is none, or more than one.

    A text as long as a token is compared whole: with a character wrong it may be another key's.
    """
    start = name.removeprefix(START)[:SHOWN_LENGTH]
    means = col(KeyRow.id) == name
    if len(name.removeprefix(START)) >= TOKEN_LENGTH - len(START):
        means = col(KeyRow.digest) == digest_of(START + ascii(name.removeprefix(START))[1:-1])
    elif len(start) >= SHORTEST_PREFIX:
        means = or_(means, func.substr(col(KeyRow.prefix), 1, len(start)) == start)
    rows = (await session.exec(select(KeyRow).where(means).order_by(col(KeyRow.id)))).all() if name.isprintable() else []
    if not rows:
        # shortened, because it may be the token of a key elsewhere
        raise KeyRefused(
            f"no key {name[:ID_TEXT_LENGTH]!r}; use an id or {SHORTEST_PREFIX} characters of a token: `campus key list` shows both"
        )
    if len(rows) > 1:
        raise KeyRefused(f"{len(rows)} keys begin with {start!r}: {', '.join(row.id for row in rows)}; use the id of one of them")
    return rows[0]


async def save(session: AsyncSession, row: KeyRow, action: str, *, at: datetime, by: str, detail: str, change: int = 0) -> None:
    """Save the key with the event that changed it; `change` is by how much the balance of its lineage was changed."""
    session.add(row)
    await session.flush()
    session.add(KeyEvent(at=at, key_id=row.id, action=action, by=by, detail=detail, credits=change))


def refuse_revoked(row: KeyRow) -> None:
    if row.revoked_at is not None:
        raise KeyRefused(f"key {row.id} was revoked on {utc_text(row.revoked_at)} and cannot be changed; a new key is needed")


def refuse_ended(row: KeyRow) -> None:
    """KeyRefused for a key that was revoked or rotated: it cannot be changed."""
    refuse_revoked(row)
    if row.replaced_by is not None:
        raise KeyRefused(f"key {row.id} was rotated before; use {row.replaced_by}, which replaced it")


def refuse_other_product(row: KeyRow, *, product: str, scope: str) -> None:
    """KeyRefused when the key is of another product, or its product has another scope now: a renewal adds time, and changes nothing."""
    if product != row.product:
        raise KeyRefused(other_product(row.id, row.product, product))
    if scope != row.scope:
        raise KeyRefused(f"key {row.id} has the scope {row.scope}, and {product} has {scope} now; a new key is needed")


def other_product(key_id: str, product: str, wanted: str) -> str:
    return f"key {key_id} is a key of {product}, and only {product} renews it; to have {wanted}, buy it as a new key, without renewing one"


def ends_of(connection: Connection, lineages: Iterable[str]) -> Mapping[str, datetime]:
    """When the last key of each lineage ends or ended; lineages all of whose keys were revoked are left out."""
    valid = select(KEYS.c.lineage, func.max(KEYS.c.expires_at).label("ends_at")).where(KEYS.c.revoked_at.is_(None)).group_by(KEYS.c.lineage)
    rows = connection.execute(valid.where(among(connection, KEYS.c.lineage, lineages)))
    return {row.lineage: row.ends_at for row in rows}
