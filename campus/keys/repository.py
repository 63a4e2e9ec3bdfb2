"""A key's row: how it is made, found by what an operator has of it, and saved together with the line of the log that names it."""

from datetime import datetime

from sqlmodel import col, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.errors import KeyRefused
from campus.keys.tables import KeyEvent, KeyRow
from campus.keys.token import MARK, PREFIX_LENGTH, digest_of, new_token, prefix_of
from campus.storage import Entropy, random_base62

ID_LENGTH = 12
SHOWN_LENGTH = len("key_") + ID_LENGTH
SHORTEST_PREFIX = 4


def new_row(
    product: str,
    scope: str,
    *,
    issued_at: datetime,
    expires_at: datetime,
    note: str,
    entropy: Entropy,
    lineage: str | None = None,
) -> tuple[KeyRow, str]:
    """A row that is not saved yet, and the token that its digest is of; without a lineage it begins one."""
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
    return row, token


async def row_named(session: AsyncSession, name: str) -> KeyRow:
    """The one row that the name means; KeyRefused when there is none, or more."""
    start = name.removeprefix(MARK)[:PREFIX_LENGTH]
    means = col(KeyRow.id) == name
    if len(start) >= SHORTEST_PREFIX:
        means = or_(means, func.substr(col(KeyRow.prefix), 1, len(start)) == start)
    rows = (await session.exec(select(KeyRow).where(means).order_by(col(KeyRow.id)))).all()
    if not rows:
        # not all of it: it may be the token of a key elsewhere
        raise KeyRefused(
            f"no key {name[:SHOWN_LENGTH]!r}; give an id, or {SHORTEST_PREFIX} characters of a token at least: `campus key list` shows both"
        )
    if len(rows) > 1:
        raise KeyRefused(f"{start!r} begins {len(rows)} keys: {', '.join(row.id for row in rows)}; give the id of one of them")
    return rows[0]


async def save(session: AsyncSession, row: KeyRow, action: str, *, at: datetime, by: str, detail: str) -> None:
    """Write the row, then the line of the log that names it."""
    session.add(row)
    await session.flush()
    session.add(KeyEvent(at=at, key_id=row.id, action=action, by=by, detail=detail))


def refuse_ended(row: KeyRow) -> None:
    """A key that was revoked, or has another in its place, changes no more: KeyRefused."""
    if row.revoked_at is not None:
        raise KeyRefused(f"key {row.id} was revoked on {utc_text(row.revoked_at)} and cannot be changed; a new key is needed")
    if row.replaced_by is not None:
        raise KeyRefused(f"key {row.id} was rotated before; {row.replaced_by} stands in its place")


def refuse_other_scope(row: KeyRow, *, product: str, scope: str) -> None:
    """A renewal opens nothing else than the key did: KeyRefused."""
    if scope != row.scope:
        raise KeyRefused(f"key {row.id} has the scope {row.scope}, and {product} has {scope}; a new key is needed")


def utc_text(moment: datetime) -> str:
    """RFC 3339, whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
