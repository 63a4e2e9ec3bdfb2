"""The token that a caller sends as its key: how it is made, checked and stored, and how its key is found at every call.

    campus_live_  32 characters of base62   6 characters of base62
    fixed prefix  190 random bits           CRC-32 of the 32 before it

Because of the checksum a typo is refused without reading the database, and a scan for leaked tokens has no false matches.
Only its SHA-256 is stored: 190 random bits need no slow hash.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from zlib import crc32

from sqlalchemy import Connection
from sqlmodel import col, select

from campus.caller import Credential
from campus.keys.lookups import CACHE_SIZE, Lookups
from campus.keys.tables import KeyRow
from campus.keys.valid_keys import ValidKeys
from campus.secrets import Entropy, base62, random_base62
from campus.storage import Storage, is_postgres

START = "campus_live_"
BODY_LENGTH = 32
CHECKSUM_LENGTH = 6
SHOWN_LENGTH = 12
TOKEN_LENGTH = len(START) + BODY_LENGTH + CHECKSUM_LENGTH
SHAPE = re.compile(rf"{START}([0-9A-Za-z]{{{BODY_LENGTH}}})([0-9A-Za-z]{{{CHECKSUM_LENGTH}}})")
USES_PER_TRANSACTION = 500
SQLITE_TIME = len("2026-08-21 12:00:00.000000")
STORE_LAST_USED = (
    "UPDATE keys SET last_used_at = used.at FROM {used} WHERE keys.id = used.id AND (last_used_at IS NULL OR last_used_at < used.at)"
)
STORE_IN_SQLITE = STORE_LAST_USED.format(used="(SELECT key AS id, value AS at FROM json_each(?)) AS used")
STORE_IN_POSTGRES = STORE_LAST_USED.format(used="unnest($1::text[], $2::timestamptz[]) AS used (id, at)")
UNKNOWN = Credential("unknown")


def new_token(entropy: Entropy) -> str:
    """Make a token. Its holder has the key."""
    body = random_base62(BODY_LENGTH, entropy)
    return f"{START}{body}{checksum_of(body)}"


def is_well_formed(text: str) -> bool:
    """Whether the text has the form of a token, checksum included."""
    match = SHAPE.fullmatch(text)
    return match is not None and match[2] == checksum_of(match[1])


def digest_of(token: str) -> bytes:
    """The SHA-256 digest under which the token is stored, 32 bytes."""
    return sha256(token.encode()).digest()


def prefix_of(token: str) -> str:
    """The first 12 random characters, by which people tell keys apart; the other 20 stay secret (119 bits)."""
    return token.removeprefix(START)[:SHOWN_LENGTH]


def checksum_of(body: str) -> str:
    """The characters that end a token: a checksum of its random ones."""
    return base62(crc32(body.encode()), CHECKSUM_LENGTH)


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
        self._used: dict[str, datetime] = {}

    async def follow(self) -> None:
        """Keep the valid keys in memory, until cancelled."""
        await self._valid.follow()

    def peek(self, token: str) -> Credential | None:
        """The credential when it is known without reading the database, else None. Text that cannot be a token is unknown."""
        if len(token) != TOKEN_LENGTH or not token.isascii():
            return UNKNOWN
        digest = digest_of(token)
        if (key := self._valid.find(digest)) is not None:
            return self._as_of_now(Credential("valid", key))
        if (found := self._lookups.known(digest)) is not None:
            return self._as_of_now(found)
        return None if is_well_formed(token) else UNKNOWN

    async def find(self, token: str) -> Credential:
        """The credential, read from the database when needed; calls that come meanwhile share the next statement."""
        if (credential := self.peek(token)) is not None:
            return credential
        return self._as_of_now(await self._lookups.find(digest_of(token)))

    def forget(self, digest: bytes) -> None:
        """Read this token from the database the next time."""
        self._lookups.forget(digest)
        self._valid.forget(digest)

    def note_use(self, key_id: str, at: datetime) -> None:
        """The key was used; the time is stored with the next flush."""
        self._used[key_id] = at

    async def flush_last_used(self) -> None:
        """Store when each key was last used since the last flush, so many at a time that no call waits long for it.

        A stored time never goes back. The statements are made in the thread of the transactions, where no call waits for them.
        """
        used, self._used = self._used, {}
        async with self._storage.batch(_store_last_used) as put:
            while used:
                some = dict(used.popitem() for _ in range(min(len(used), USES_PER_TRANSACTION)))
                try:
                    await put(some)
                except BaseException:  # a cancellation too
                    self._used = used | some | self._used
                    raise

    async def _read(self, digests: Collection[bytes]) -> Mapping[bytes, Credential]:
        """The credentials without a check of their end: `valid` here means that the key was not revoked."""
        async with self._storage.read() as session:
            rows = await session.exec(select(KeyRow).where(col(KeyRow.digest).in_(digests)))
            found = {row.digest: Credential("valid" if row.revoked_at is None else "revoked", row.key()) for row in rows}
            return {digest: found.get(digest, UNKNOWN) for digest in digests}

    def _as_of_now(self, found: Credential) -> Credential:
        """The credential as of now."""
        if found.state != "valid" or found.key is None:
            return found
        now = self._now()
        if found.key.has_ended(now):
            return Credential("expired", found.key)
        self._used[found.key.id] = now
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
