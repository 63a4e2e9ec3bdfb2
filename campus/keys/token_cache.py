"""From a token to its key, at the pace of a paid call: what was read in the last seconds is not read again."""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any

import anyio
from sqlalchemy import bindparam, or_, update
from sqlmodel import col, select

from campus.caller import Credential
from campus.keys.tables import KeyRow
from campus.keys.token import TOKEN_LENGTH, digest_of, is_well_formed
from campus.storage import Storage

CACHE_SECONDS = 5.0
CACHE_SIZE = 10_000
UNKNOWN = Credential("unknown")


class TokenCache:
    """Finds the keys of tokens, and notes when each was last used.

    An answer of the database, found or not, serves for 5 seconds from the moment it was asked for: a revocation in
    another process bites within that. Whether a key has expired is judged anew at every look. Tokens are remembered by
    their digest only; of more than `size` the one that was unused for longest goes.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], datetime], monotonic: Callable[[], float], size: int = CACHE_SIZE) -> None:
        self._storage = storage
        self._now = now
        self._monotonic = monotonic
        self._size = size
        self._known: OrderedDict[bytes, tuple[float, Credential]] = OrderedDict()
        self._asking: dict[bytes, anyio.Event] = {}
        self._used: dict[str, datetime] = {}

    def peek(self, token: str) -> Credential | None:
        """What is known without a wait; None: only the database can tell. Text that cannot be a token is unknown."""
        if len(token) != TOKEN_LENGTH or not token.isascii():
            return UNKNOWN
        digest = digest_of(token)
        entry = self._known.get(digest)
        if entry is None or entry[0] <= self._monotonic():
            return None if is_well_formed(token) else UNKNOWN
        self._known.move_to_end(digest)
        return self._judge(entry[1])

    async def find(self, token: str) -> Credential:
        """What is known, else what the database says; calls that ask for one token at once share one answer."""
        if (credential := self.peek(token)) is not None:
            return credential
        digest = digest_of(token)
        if asking := self._asking.get(digest):
            await asking.wait()
            if (credential := self.peek(token)) is not None:
                return credential
        return self._judge(await self._ask(digest))

    def forget(self, digest: bytes) -> None:
        """Ask the database about this token the next time."""
        self._known.pop(digest, None)

    async def flush_last_used(self) -> None:
        """Write down when each key was last used since the last flush; a time on disk never goes back."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await self._write_last_used(used)
        except BaseException:  # a cancellation too
            self._used = used | self._used
            raise

    async def _write_last_used(self, used: dict[str, datetime]) -> None:
        earlier = or_(col(KeyRow.last_used_at).is_(None), col(KeyRow.last_used_at) < bindparam("used_at"))
        statement = update(KeyRow).where(col(KeyRow.id) == bindparam("key_id"), earlier).values(last_used_at=bindparam("used_at"))
        rows: list[dict[str, Any]] = [{"key_id": key_id, "used_at": at} for key_id, at in sorted(used.items())]
        async with self._storage.write() as session:
            await (await session.connection()).execute(statement, rows)

    async def _ask(self, digest: bytes) -> Credential:
        asked_at = self._monotonic()
        asking = self._asking[digest] = anyio.Event()
        try:
            credential = await self._read(digest)
            self._remember(digest, credential, until=asked_at + CACHE_SECONDS)
        finally:
            if self._asking.get(digest) is asking:
                del self._asking[digest]
            asking.set()
        return credential

    async def _read(self, digest: bytes) -> Credential:
        """The credential but for its end: `valid` here says only that it was not revoked."""
        async with self._storage.read() as session:
            row = (await session.exec(select(KeyRow).where(col(KeyRow.digest) == digest))).one_or_none()
            if row is None:
                return UNKNOWN
            return Credential("valid" if row.revoked_at is None else "revoked", row.key())

    def _remember(self, digest: bytes, credential: Credential, *, until: float) -> None:
        self._known[digest] = (until, credential)
        self._known.move_to_end(digest)
        if len(self._known) > self._size:
            self._known.popitem(last=False)

    def _judge(self, found: Credential) -> Credential:
        """What was read, at this moment of the clock."""
        if found.state != "valid" or found.key is None:
            return found
        now = self._now()
        if found.key.has_ended(now):
            return Credential("expired", found.key)
        self._used[found.key.id] = now
        return found
