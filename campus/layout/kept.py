"""What is kept for one browser: sealed under a secret that only its cookie holds, in campus's own database, until it ends.

The database alone opens nothing of it, and neither does its name: whoever asks must send the cookie.
"""

import secrets
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, delete, func, or_, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.requests import Request
from starlette.responses import Response

from campus.keys.tables import KeptRow
from campus.layout.forms import Cookies
from campus.secrets import digest_of, seal, unseal
from campus.storage import Storage

RETENTION = timedelta(hours=1)
SKEW = timedelta(minutes=5)
"""How far the clocks of two processes may be apart. What was kept later than that was kept before the clock was set back."""
LARGEST = 256 * 1024  # The bytes of one, once it is sealed.
OF_ONE_BROWSER, OF_ONE_NETWORK, IN_ALL = 2 * 1024**2, 8 * 1024**2, 128 * 1024**2
"""The bytes that are kept; beyond them the oldest ends early. A form needs no key, so that strangers can fill all of it."""
LEAST_COUNTED = 4 * 1024
"""What a smaller one counts, which bounds their number too."""


def seal_for(request: Request, response: Response, data: bytes, *, cookies: Cookies, context: bytes) -> bytes:
    """Data that this browser alone opens, also after it signed in or out; `response` gives it a secret if it has none yet."""
    return seal(data, cookies.own_secret(request, response), entropy=secrets.token_bytes, context=context)


def open_for(request: Request, sealed: bytes, *, cookies: Cookies, context: bytes) -> bytes | None:
    """What was sealed for this browser with the same context; None for any other browser."""
    found = (unseal(sealed, secret, context=context) for secret in cookies.secrets_of(request))
    return next((data for data in found if data is not None), None)


class Kept:
    """What is kept, by names that nobody can guess."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now

    async def keep(self, name: str, data: bytes, *, secret: str, network: str, lasts: timedelta = RETENTION) -> bool:
        """Keep it instead of what has this name; False, keeping nothing, if it is too large. `network` is that of who asked."""
        sealed = seal(data, secret, entropy=secrets.token_bytes, context=name.encode())
        if len(sealed) > LARGEST:
            return False
        now, owner = self._now(), digest_of(secret)
        size = max(len(sealed), LEAST_COUNTED)
        row = KeptRow(name=name, owner=owner, network=network, sealed=sealed, size=size, kept_at=now, ends_at=now + lasts)
        async with self._storage.write() as session:
            await session.exec(delete(KeptRow).where(or_(col(KeptRow.name) == name, col(KeptRow.ends_at) <= now)))
            session.add(row)
            await session.flush()
            await _end_oldest(session, OF_ONE_BROWSER, col(KeptRow.owner) == owner)
            await _end_oldest(session, OF_ONE_NETWORK, col(KeptRow.network) == network)
            await _end_oldest(session, IN_ALL, col(KeptRow.size) > 0)
        return True

    async def find(self, name: str, secrets: Iterable[str]) -> bytes | None:
        """What is kept under this name, if one of the secrets opens it."""
        now = self._now()
        async with self._storage.read() as session:
            row = await session.get(KeptRow, name)
        if row is None or not row.kept_at - SKEW <= now < row.ends_at:
            return None
        found = (unseal(row.sealed, secret, context=name.encode()) for secret in secrets)
        return next((data for data in found if data is not None), None)

    async def forget(self, secret: str) -> None:
        """End all that this secret opens, such as that of a session which is over."""
        async with self._storage.write() as session:
            await session.exec(delete(KeptRow).where(col(KeptRow.owner) == digest_of(secret)))


async def _end_oldest(session: AsyncSession, most: int, chosen: ColumnElement[bool]) -> None:
    """End the oldest of the chosen ones that have more bytes than `most` together with those after them."""
    if ((await session.exec(select(func.sum(KeptRow.size)).where(chosen))).one() or 0) <= most:
        return
    newest = (col(KeptRow.kept_at).desc(), col(KeptRow.name))
    summed = select(KeptRow.name, func.sum(KeptRow.size).over(order_by=newest).label("total")).where(chosen).subquery()
    await session.exec(delete(KeptRow).where(col(KeptRow.name).in_(select(summed.c.name).where(summed.c.total > most))))
