"""Sessions of browsers: a visitor signs in with a key once, and a random id in a cookie stands for the key until the key ends."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import col, delete, select

from campus.caller import ABSENT, Credential, Key
from campus.keys.tables import KeyRow, SessionRow
from campus.secrets import digest_of
from campus.storage import Storage

LONGEST_SESSION = timedelta(days=7)
TO_RENEW = timedelta(hours=1)
"""How long a browser is known that signed in with an expired key: it opens nothing, and may be renewed."""
ID_LENGTH = 32


@dataclass(frozen=True)
class OpenedSession:
    """A new session: the id for the cookie, which cannot be read again, and when the session ends unless its key ends earlier."""

    id: str
    ends_at: datetime


class Sessions:
    """The sessions in campus's own database. Only the digest of an id is stored.

    Nothing is cached: a session ends at once in every process when it is closed, or when its key is revoked or expires.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now

    async def open(self, key: Key, *, instead_of: str | None = None) -> OpenedSession:
        now = self._now()
        session_id = secrets.token_urlsafe(24)
        ends_at = now + TO_RENEW if key.has_ended(now) else min(now + LONGEST_SESSION, key.expires_at)
        row = SessionRow(digest=digest_of(session_id), key_id=key.id, lineage=key.lineage, opened_at=now, ends_at=ends_at)
        async with self._storage.write() as session:
            await session.exec(delete(SessionRow).where(col(SessionRow.ends_at) <= now))
            await session.exec(delete(SessionRow).where(col(SessionRow.digest) == digest_of(instead_of or "")))
            session.add(row)
        return OpenedSession(session_id, ends_at)

    async def find(self, session_id: str) -> Credential:
        """The key of a session: valid, or expired or revoked since it was opened; absent if the session does not exist or has ended."""
        if len(session_id) != ID_LENGTH:
            return ABSENT
        now = self._now()
        joined = select(KeyRow, SessionRow).join(SessionRow, col(SessionRow.key_id) == col(KeyRow.id))
        async with self._storage.read() as session:
            found = (await session.exec(joined.where(col(SessionRow.digest) == digest_of(session_id)))).one_or_none()
        if found is None or (now >= found[1].ends_at and not found[0].key().has_ended(now)):
            return ABSENT
        key = found[0].key()
        if found[0].revoked_at is not None:
            return Credential("revoked", key)
        return Credential("expired" if key.has_ended(now) else "valid", key)

    async def close(self, session_id: str) -> None:
        """End a session; does nothing if there is none, and then waits for no writer: anyone may send any id."""
        digest = digest_of(session_id)
        async with self._storage.read() as session:
            if await session.get(SessionRow, digest) is None:
                return
        async with self._storage.write() as session:
            await session.exec(delete(SessionRow).where(col(SessionRow.digest) == digest))
