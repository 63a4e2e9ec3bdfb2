"""How the key of a call's token is found: valid keys in memory, other tokens in the database; and when each key was last used.

The valid keys take 400 bytes each. Every change of a key writes an entry of `key_events` in its transaction. The writers of all
processes take turns, so the entries' numbers follow the order of the commits, and a process that reads those after the last one that
it knows learns of every change. What is in memory is used for five seconds from the start of a successful reading; without the next
one, each key is read again.

Records are plain tuples of texts and times, which Python's garbage collector leaves out: it would look through 100,000 objects of
the class Key each time, which stalls all calls for 30 ms.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from sys import intern
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
from sqlalchemy import Connection, TextClause, text
from sqlmodel import col, select

from campus.caller import Credential, Key
from campus.errors import StorageError
from campus.keys.lookups import CACHE_SIZE, Lookups
from campus.keys.tables import KeyRow
from campus.keys.tokens import TOKEN_LENGTH, is_well_formed
from campus.secrets import digest_of
from campus.storage import Storage, in_snapshot, is_postgres
from campus.storage.buffers import Buffer

CURRENT_SECONDS = 5.0
FOLLOW_SECONDS = 1.0
ROWS_PER_READ = 1_000
ROWS_AT_ONCE = 100  # A third of a millisecond of Python, for which calls wait.
LONG_AGO = datetime.min.replace(tzinfo=UTC)
Record = tuple[str, str, str, str, datetime, datetime]  # The fields of a Key.
COLUMNS = "k.id, k.digest, k.product, k.scope, k.lineage, k.issued_at, k.expires_at"
LAST_EVENT = text("SELECT id, at FROM key_events ORDER BY id DESC LIMIT 1")
KEYS_AFTER = text(f"SELECT {COLUMNS} FROM keys k WHERE k.id > :after AND k.revoked_at IS NULL ORDER BY k.id LIMIT {ROWS_PER_READ}")  # noqa: S608  # our own texts
CHANGES_SINCE = text(
    f"SELECT e.id, e.at, k.revoked_at, {COLUMNS} FROM key_events e JOIN keys k ON k.id = e.key_id"  # noqa: S608
    f" WHERE e.id >= :number ORDER BY e.id LIMIT {ROWS_PER_READ}"
)
"""Texts, because SQLAlchemy's conversion of each value takes four times as long as all else."""
USES_PER_TRANSACTION = 500
SQLITE_TIME = len("2026-08-21 12:00:00.000000")
STORE_LAST_USED = (
    "UPDATE keys SET last_used_at = used.at FROM {used} WHERE keys.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)"
)
STORE_IN_SQLITE = STORE_LAST_USED.format(used="(SELECT key AS id, value AS at FROM json_each(?)) AS used")
STORE_IN_POSTGRES = STORE_LAST_USED.format(used="unnest($1::text[], $2::timestamptz[]) AS used (id, at)")
UNKNOWN = Credential("unknown")


class TokenCache:
    """Finds the keys of tokens, and records when each was last used.

    Valid keys are in memory, while `follow` runs. For any other token the database is asked, once for all that wait, and what it
    answers, a key or none, is kept for 5 seconds from the question. So a revocation by another process takes effect within that
    time. Expiry is checked at every call. Tokens are kept by their digests only; of those that are no valid key at most `size`,
    and the least recently used is dropped first.
    """

    def __init__(self, storage: Storage, *, now: Callable[[], datetime], monotonic: Callable[[], float], size: int = CACHE_SIZE) -> None:
        self._storage = storage
        self._now = now
        self._valid = ValidKeys(storage, now=now, monotonic=monotonic)
        self._lookups = Lookups(self._read, monotonic=monotonic, size=size)
        self._used: Buffer[str, datetime] = Buffer({}, self._store_last_used, at_once=USES_PER_TRANSACTION)
        self.flush_last_used = self._used.flush

    async def follow(self) -> None:
        await self._valid.follow()

    def peek(self, token: str) -> Credential | None:
        """The credential when it is known without reading the database, else None. Text that cannot be a token is unknown."""
        if len(token) != TOKEN_LENGTH or not token.isascii():
            return UNKNOWN
        digest = digest_of(token)
        if (found := self._valid.find(digest) or self._lookups.known(digest)) is not None:
            return self._as_of_now(found)
        return None if is_well_formed(token) else UNKNOWN

    async def find(self, token: str) -> Credential:
        """The credential, read from the database when needed; calls that come meanwhile share the next statement."""
        if (credential := self.peek(token)) is not None:
            return credential
        return self._as_of_now(await self._lookups.find(digest_of(token)))

    def forget(self, digest: bytes) -> None:
        self._lookups.forget(digest)
        self._valid.forget(digest)

    def note_use(self, key_id: str, at: datetime) -> None:
        self._used.waiting[key_id] = at

    async def _store_last_used(self, used: Mapping[str, datetime]) -> None:
        """Store when keys were last used: in the thread of the transactions, where no call waits for it. A stored time never goes back."""
        async with self._storage.batch(_store_last_used) as put:
            await put(used)

    async def _read(self, digests: Collection[bytes]) -> Mapping[bytes, Credential]:
        """The credentials without a check of their end: `valid` here means that the key was not revoked."""
        async with self._storage.read() as session:
            rows = await session.exec(select(KeyRow).where(col(KeyRow.digest).in_(digests)))
            found = {row.digest: Credential("valid" if row.revoked_at is None else "revoked", row.key()) for row in rows}
            return {digest: found.get(digest, UNKNOWN) for digest in digests}

    def _as_of_now(self, found: Credential) -> Credential:
        if found.state != "valid" or found.key is None:
            return found
        now = self._now()
        if found.key.has_ended(now):
            return Credential("expired", found.key)
        self._used.waiting[found.key.id] = now
        return found


def _store_last_used(connection: Connection, groups: Sequence[Mapping[str, datetime]]) -> Sequence[None]:
    for used in groups:
        _store_group(connection, used)
    return [None] * len(groups)


def _store_group(connection: Connection, used: Mapping[str, datetime]) -> None:
    if is_postgres(connection):
        connection.exec_driver_sql(STORE_IN_POSTGRES, (list(used), list(used.values())))
    else:
        texts = {key_id: at.astimezone(UTC).isoformat(" ", "microseconds")[:SQLITE_TIME] for key_id, at in used.items()}
        connection.exec_driver_sql(STORE_IN_SQLITE, (json.dumps(texts),))


class LogPlace(NamedTuple):
    """An entry of the log of the keys' changes: its number and time, which another database's entry of this number would not have."""

    number: int
    at: Any


BEGINNING = LogPlace(0, None)


class ValidKeys:
    """The keys of this campus that are not revoked, by the digests of their tokens, while `follow` runs."""

    def __init__(
        self, storage: Storage, *, now: Callable[[], datetime], monotonic: Callable[[], float], pace: float = FOLLOW_SECONDS
    ) -> None:
        self._storage = storage
        self._now = now
        self._monotonic = monotonic
        self._pace = pace
        self._records: dict[bytes, Record] = {}
        self._current_until = -inf
        self._last = BEGINNING
        self._changed_here: set[bytes] = set()

    def find(self, digest: bytes) -> Credential | None:
        """`valid` and the key, which may have ended; None if it is unknown or revoked, and for all while they are not up to date."""
        record = self._records.get(digest)
        if record is None or self._monotonic() >= self._current_until:
            return None
        return Credential("valid", Key._make(record))

    def forget(self, digest: bytes) -> None:
        """This process changed the key: leave it out until the log is read again."""
        self._records.pop(digest, None)
        self._changed_here.add(digest)

    async def follow(self) -> None:
        """Read all keys, then every `pace` seconds what changed, until cancelled. StorageError when the database cannot be read."""
        await self._read_all()
        while True:
            await self._catch_up()
            await anyio.sleep(self._pace)

    async def _read_all(self) -> None:
        self._current_until = -inf
        self._records.clear()
        newest = await self._rows(LAST_EVENT)
        self._last = LogPlace(*newest[0]) if newest else BEGINNING
        after = ""
        now = self._now()
        while rows := await self._rows(KEYS_AFTER, after=after):
            for place, row in enumerate(rows):
                self._put(row, ending_after=now)
                if place % ROWS_AT_ONCE == 0:
                    await anyio.lowlevel.checkpoint()
            after = rows[-1][0]

    async def _catch_up(self) -> None:
        asked_at = self._monotonic()
        begun_at = self._last
        self._changed_here.clear()
        while True:
            rows = await self._rows(CHANGES_SINCE, number=self._last.number)
            has_last = self._last != BEGINNING
            if has_last and (not rows or LogPlace(*rows[0][:2]) != self._last):
                raise StorageError("the log of the keys' changes is another one: the database was replaced; all keys are read again")
            for number, at, revoked_at, *key in rows[1 if has_last else 0 :]:
                self._last = LogPlace(number, at)
                if revoked_at is not None:
                    self._records.pop(key[1], None)
                elif key[1] not in self._changed_here:
                    self._put(key)
            if len(rows) < ROWS_PER_READ:
                break
        if self._changed_here:  # what was read may be older than these changes: the same entries are read again
            self._last = begun_at
        self._current_until = asked_at + CURRENT_SECONDS

    async def _rows(self, statement: TextClause, **values: Any) -> Sequence[Any]:
        return await in_snapshot(self._storage, lambda connection: connection.execute(statement, values).all())

    def _put(self, row: Sequence[Any], *, ending_after: datetime = LONG_AGO) -> None:
        key_id, digest, product, scope, lineage, issued_at, expires_at = row
        expires = _utc(expires_at)
        if expires > ending_after:
            lineage = key_id if lineage == key_id else lineage  # one object, as the names of products and scopes are
            self._records[digest] = (key_id, intern(product), intern(scope), lineage, _utc(issued_at), expires)


def _utc(value: datetime | str) -> datetime:
    """A time as the driver returns it: SQLite stores text in UTC, and PostgreSQL's driver returns a datetime."""
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value
