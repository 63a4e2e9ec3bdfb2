"""What is kept for one browser: sealed under a secret that only its cookie holds, in campus's own database, until it ends.

Neither the database nor its name opens it: a request must send the cookie.
"""

import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, delete, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.keys.sessions import LONGEST_SESSION
from campus.keys.tables import KeptRow, SentFormRow
from campus.secrets import digest_of, seal, unsealed
from campus.shares import SENDER
from campus.storage import Storage

RETENTION = timedelta(hours=1)
SKEW = timedelta(minutes=5)
"""How far the clocks of two processes may be apart. What was kept later than that was kept before the clock was set back."""
LARGEST = 1024**2  # The bytes of one, once it is sealed.
OF_ONE_BROWSER, OF_ONE_HOLDER, OF_STRANGERS = 4 * 1024**2, 8 * 1024**2, 64 * 1024**2
"""How many bytes are kept; beyond them the oldest end early. A form needs no key, so that strangers can fill all that they may have."""
LEAST_COUNTED = 4 * 1024
"""What a smaller one counts, which bounds their number too."""
SENT_FOR = LONGEST_SESSION
"""How long it is known that a form was sent."""


class Kept:
    """What is kept, by names that nobody can guess; and the names of the forms that were sent, each of which does its work once."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self.now = now

    async def keep(self, name: str, data: bytes, *, secret: str, holder: str, lasts: timedelta = RETENTION) -> bool:
        """Keep it instead of what has this name; False, keeping nothing, if it is too large. `holder` is whose share it takes from:
        the lineage of a key, or SENDER and the network of who has none."""
        sealed = seal(data, secret, entropy=secrets.token_bytes, context=name.encode())
        if len(sealed) > LARGEST:
            return False
        now, owner, size = self.now(), digest_of(secret), max(len(sealed), LEAST_COUNTED)
        row = KeptRow(name=name, owner=owner, holder=holder, size=size, kept_at=now, ends_at=now + lasts, sealed=sealed)
        async with self._storage.write() as session:
            await session.exec(delete(KeptRow).where(or_(col(KeptRow.name) == name, col(KeptRow.ends_at) <= now)))
            session.add(row)
            await session.flush()
            await _end_oldest(session, OF_ONE_BROWSER, col(KeptRow.owner) == owner)
            await _end_oldest(session, OF_ONE_HOLDER, col(KeptRow.holder) == holder)
            await _end_oldest(session, OF_STRANGERS, col(KeptRow.holder).startswith(SENDER))
        return True

    async def find(self, name: str, secrets: Iterable[str]) -> bytes | None:
        """What is kept under this name, if one of the secrets opens it."""
        now = self.now()
        async with self._storage.read() as session:
            row = await session.get(KeptRow, name)
        if row is None or not row.kept_at - SKEW <= now < row.ends_at:
            return None
        return unsealed(row.sealed, secrets, context=name.encode())

    async def forget(self, secret: str) -> None:
        """End all that this secret opens, such as that of a session which is over. It waits for no writer if that is nothing."""
        mine = col(KeptRow.owner) == digest_of(secret)
        async with self._storage.read() as session:
            if (await session.exec(select(KeptRow.name).where(mine).limit(1))).first() is None:
                return
        async with self._storage.write() as session:
            await session.exec(delete(KeptRow).where(mine))

    async def take(self, form: str) -> datetime | None:
        """Note that a form is being answered: None; when it was sent before if it was."""
        now, digest = self.now(), digest_of(form)
        async with self._storage.read() as session:
            if (row := await session.get(SentFormRow, digest)) is not None:
                return row.sent_at
        async with self._storage.write() as session:
            await session.exec(delete(SentFormRow).where(col(SentFormRow.sent_at) <= now - SENT_FOR))
            if (row := await session.get(SentFormRow, digest)) is not None:
                return row.sent_at
            session.add(SentFormRow(digest=digest, sent_at=now))
        return None

    async def give_back(self, form: str) -> None:
        """A form that was refused may be sent again."""
        async with self._storage.write() as session:
            await session.exec(delete(SentFormRow).where(col(SentFormRow.digest) == digest_of(form)))


async def _end_oldest(session: AsyncSession, most: int, chosen: ColumnElement[bool]) -> None:
    """End those of the chosen that have more bytes than `most` together with the later ones."""
    if ((await session.exec(select(func.sum(KeptRow.size)).where(chosen))).one() or 0) <= most:
        return
    latest = (col(KeptRow.kept_at).desc(), col(KeptRow.name))
    summed = select(KeptRow.name, func.sum(KeptRow.size).over(order_by=latest).label("total")).where(chosen).subquery()
    await session.exec(delete(KeptRow).where(col(KeptRow.name).in_(select(summed.c.name).where(summed.c.total > most))))
