"""How the credential of an access token is found: the token of a client program that a key's holder let in by OAuth."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import col, select

from campus.caller import Credential
from campus.features.connect.let_in import opens
from campus.features.connect.tables import ClientRow, TokenRow
from campus.keys.lookups import Lookups
from campus.keys.tables import KeyRow
from campus.keys.tokens import ACCESS, ACCESS_LENGTH, is_client_token
from campus.secrets import digest_of
from campus.storage import Storage

NEVER = datetime.min.replace(tzinfo=UTC)
UNKNOWN = Credential("unknown")


def lasts(client: ClientRow, now: datetime) -> bool:
    """Whether the client has not ended."""
    return client.ends_at is None or now < client.ends_at


@dataclass(frozen=True, slots=True)
class Opened:
    """What an access token opens until it expires, or its key does."""

    credential: Credential
    building: str
    expires_at: datetime


NOTHING = Opened(UNKNOWN, "", NEVER)


class AccessTokens:
    """Finds the credentials of access tokens; one object per process.

    What was read is used for 5 seconds, so that whatever shuts a client out takes effect in every process within that time.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        note_use: Callable[[str, datetime], None],
    ) -> None:
        """`note_use` is told the id of each key that a client calls with, and when."""
        self._storage = storage
        self._now = now
        self._note_use = note_use
        self._lookups = Lookups(self._read, monotonic=monotonic)

    def peek(self, token: str, building: str) -> Credential | None:
        """The credential of a token at a building, if it is known without reading the database; None: await `find`.

        Its state is valid or unknown: a token that has ended, or that is for another building, is unknown.
        """
        if len(token) != ACCESS_LENGTH or not token.startswith(ACCESS) or not token.isascii():
            return UNKNOWN
        if (found := self._lookups.known(digest_of(token))) is not None:
            return self._as_of_now(found, building)
        return None if is_client_token(token) else UNKNOWN

    async def find(self, token: str, building: str) -> Credential:
        """The credential, read from the database when needed; calls that come meanwhile share the next statement."""
        if (credential := self.peek(token, building)) is not None:
            return credential
        return self._as_of_now(await self._lookups.find(digest_of(token)), building)

    def forget(self, digests: Collection[bytes]) -> None:
        """Read these tokens from the database the next time."""
        for digest in digests:
            self._lookups.forget(digest)

    def _as_of_now(self, found: Opened, building: str) -> Credential:
        key = found.credential.key
        if key is None or found.building != building:
            return UNKNOWN
        now = self._now()
        if now >= found.expires_at or key.has_ended(now):
            return UNKNOWN
        self._note_use(key.id, now)
        return found.credential

    async def _read(self, digests: Collection[bytes]) -> Mapping[bytes, Opened]:
        """What the tokens open, without a check of their ends and their keys', which come without a change in the database."""
        chosen = (
            select(TokenRow, ClientRow, KeyRow)
            .join(ClientRow, col(ClientRow.id) == col(TokenRow.client))
            .join(KeyRow, col(KeyRow.id) == col(ClientRow.key_id))
            .where(col(TokenRow.digest).in_(digests), col(TokenRow.kind) == "access")
        )
        now = self._now()
        async with self._storage.read() as session:
            found = {
                token.digest: Opened(Credential("valid", key.key(), client.id), client.building, token.expires_at or NEVER)
                for token, client, key in await session.exec(chosen)
                if lasts(client, now) and opens(key)
            }
        return {digest: found.get(digest, NOTHING) for digest in digests}
