"""The client programs that keys' holders let in by OAuth: with a code, which they exchange for tokens, until a token is used twice.

A client is shut out as soon as its key is revoked, expires, or is replaced by a rotation; a renewal keeps it. What it stores belongs
to the key's lineage, and what it made stops with it unless the owner keeps it. A change is on disk when its method returns.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import anyio
from sqlmodel import col, delete, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.caller import Key
from campus.errors import KeyRefused
from campus.features.connect.access_tokens import AccessTokens, lasts
from campus.features.connect.let_in import end_client, opens
from campus.features.connect.tables import ClientRow, TokenRow
from campus.keys.makers import Makers
from campus.keys.repository import refuse_ended
from campus.keys.tables import KeyRow, SecretRow
from campus.keys.tokens import ACCESS, Kind, is_client_token, new_client_token
from campus.secrets import Entropy, digest_of, random_id
from campus.storage import Storage

CODE_TERM, ACCESS_TERM = timedelta(seconds=60), timedelta(days=1)
RETRY_TIME = timedelta(minutes=2)
"""How long a used refresh token is answered again: clients refresh from several processes at once, or lose the answer."""
REUSE_NOTICED = timedelta(days=7)
"""How long a used refresh token is kept, so that a later use ends the client."""
KEPT_AFTER_END = timedelta(days=1)
READINGS = 2
"""Statements that look codes and refresh tokens up at once: strangers may send any number of them."""
CLIENTS_PER_KEY = 20
TOKENS_PER_CLIENT = 100
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Consent:
    """What a key's holder agrees to: which client may call which building's tools, and where its code is sent."""

    client_id: str
    client_name: str
    building: str
    code_challenge: str
    redirect_uri: str

    @property
    def returns_to(self) -> str:
        """The host that the code is sent to, or the scheme of an editor."""
        parts = urlsplit(self.redirect_uri)
        return parts.netloc if parts.scheme in ("http", "https") else f"{parts.scheme}:"


@dataclass(frozen=True, slots=True)
class Issued:
    """What a code or refresh token was issued for, whether or not it can still be used; a refresh token is bound to no challenge."""

    client_id: str
    building: str
    code_challenge: str = ""
    redirect_uri: str = ""


@dataclass(frozen=True, slots=True)
class TokenPair:
    """Tokens for a client, which cannot be read again. `seconds` is how long the access token is valid."""

    access: str
    refresh: str
    building: str
    seconds: int


class ConnectedClients:
    """The connected clients in campus's own database; one object per process. `tokens` finds the credentials of their calls.

    `makers` has what is known of them as the makers of things.
    """

    def __init__(self, storage: Storage, tokens: AccessTokens, makers: Makers, *, now: Callable[[], datetime], entropy: Entropy) -> None:
        self._storage = storage
        self._now = now
        self._entropy = entropy
        self.tokens = tokens
        self._makers = makers
        self._secret: str | None = None
        self._readings = anyio.Semaphore(READINGS)

    async def secret(self) -> str:
        """The secret by which client ids and requests are recognised as this campus's own."""
        if self._secret is None:
            async with self._storage.read() as session:
                self._secret = (await session.exec(select(SecretRow).where(SecretRow.name == "connect"))).one().value.hex()
        return self._secret

    async def agree(self, key: Key, consent: Consent) -> str:
        """A code for the client. KeyRefused if the key was revoked, or replaced by a rotation."""
        now = self._now()
        code = new_client_token("code", self._entropy)
        client = ClientRow(
            id=random_id("client", self._entropy),
            key_id=key.id,
            building=consent.building,
            client_id=consent.client_id,
            client_name=consent.client_name,
            returns_to=consent.returns_to,
            connected_at=now,
            ends_at=now + CODE_TERM,
        )
        token = _token(code, "code", client, now=now, expires_at=now + CODE_TERM)
        token.code_challenge = consent.code_challenge
        token.redirect_uri = consent.redirect_uri
        async with self._storage.write() as session:
            row = await session.get(KeyRow, key.id)
            if row is None:
                raise KeyRefused(f"no key {key.id!r}")
            refuse_ended(row)
            await _delete_what_is_over(session, now)
            session.add(client)
            await session.flush()
            session.add(token)
        return code

    async def issued(self, token: str, kind: Kind) -> Issued | None:
        """What a code or a refresh token was issued for, also if it was used; None for one that is unknown."""
        if not is_client_token(token):
            return None
        async with self._readings, self._storage.read() as session:
            found = await _with_client(session, token, kind)
        if found is None:
            return None
        return Issued(found[1].client_id, found[1].building, found[0].code_challenge or "", found[0].redirect_uri or "")

    async def exchange(self, token: str, kind: Kind) -> TokenPair | None:
        """New tokens for a code or a refresh token. None if it is unknown, used or expired, or if its key has ended.

        A code that is used twice, and a refresh token that is used again after two minutes, end the client with all its tokens.
        """
        now = self._now()
        pair = None
        ended = list[bytes]()
        async with self._storage.write() as session:
            found = await _with_client(session, token, kind)
            if found is None or not lasts(found[1], now):
                return None
            row, client = found
            key = await session.get_one(KeyRow, client.key_id)
            if row.used_at is not None and (kind == "code" or now - row.used_at > RETRY_TIME):
                ended = await end_client(session, client, self._now())
                log.warning("client ended", extra={"client": client.id, "key_id": client.key_id, "reason": f"a {kind} was used twice"})
            elif opens(key) and not key.key().has_ended(now):
                pair = await self._issue(session, client, now)
                if row.used_at is None:
                    row.used_at = now
                    row.expires_at = now + REUSE_NOTICED
                    client.ends_at = None
                    await self._end_oldest(session, client)
        self._forget(ended)
        return pair

    async def revoke(self, token: str, *, client_id: str) -> None:
        """End the client that an access or refresh token was issued to, if it has this client id."""
        if not is_client_token(token):
            return
        kind: Kind = "access" if token.startswith(ACCESS) else "refresh"
        async with self._readings, self._storage.read() as session:  # read first: made-up tokens keep no writer waiting
            found = await _with_client(session, token, kind)
        if found is None or found[1].client_id != client_id:
            return
        async with self._storage.write() as session:
            client = await session.get(ClientRow, found[1].id)
            ended = await end_client(session, client, self._now()) if client else []
        self._forget(ended)

    async def _issue(self, session: AsyncSession, client: ClientRow, now: datetime) -> TokenPair:
        """A new pair; of the client's tokens the latest are kept."""
        own = col(TokenRow.client) == client.id
        issued_at = col(TokenRow.issued_at)
        spare = select(TokenRow.digest).where(own).order_by(issued_at.desc()).offset(TOKENS_PER_CLIENT)
        await session.exec(delete(TokenRow).where(col(TokenRow.digest).in_((await session.exec(spare)).all())))
        access = new_client_token("access", self._entropy)
        refresh = new_client_token("refresh", self._entropy)
        session.add(_token(access, "access", client, now=now, expires_at=now + ACCESS_TERM))
        session.add(_token(refresh, "refresh", client, now=now))
        return TokenPair(access, refresh, client.building, int(ACCESS_TERM.total_seconds()))

    def _forget(self, ended: Collection[bytes]) -> None:
        """Read what concerns clients that have ended from the database the next time; `ended` are the digests of their access tokens."""
        self.tokens.forget(ended)
        self._makers.forget()

    async def _end_oldest(self, session: AsyncSession, client: ClientRow) -> None:
        """End the key's clients beyond the latest ones; their calls are refused within 5 seconds."""
        await session.flush()
        lasting = select(ClientRow).where(col(ClientRow.key_id) == client.key_id, col(ClientRow.ends_at).is_(None))
        for row in (await session.exec(lasting.order_by(col(ClientRow.connected_at).desc()).offset(CLIENTS_PER_KEY))).all():
            await end_client(session, row, self._now())


def _token(token: str, kind: Kind, client: ClientRow, *, now: datetime, expires_at: datetime | None = None) -> TokenRow:
    return TokenRow(digest=digest_of(token), client=client.id, kind=kind, issued_at=now, expires_at=expires_at)


async def _with_client(session: AsyncSession, token: str, kind: Kind) -> tuple[TokenRow, ClientRow] | None:
    joined = select(TokenRow, ClientRow).join(ClientRow, col(ClientRow.id) == col(TokenRow.client))
    chosen = joined.where(col(TokenRow.digest) == digest_of(token), col(TokenRow.kind) == kind)
    return (await session.exec(chosen)).one_or_none()


async def _delete_what_is_over(session: AsyncSession, now: datetime) -> None:
    """Delete what ended a day ago: until then a second use is noticed."""
    before = now - KEPT_AFTER_END
    over = select(ClientRow.id).where(col(ClientRow.ends_at) <= before)
    await session.exec(delete(TokenRow).where(col(TokenRow.expires_at) <= before))
    await session.exec(delete(TokenRow).where(col(TokenRow.client).in_(over)))
    await session.exec(delete(ClientRow).where(col(ClientRow.ends_at) <= before))
