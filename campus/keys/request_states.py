"""The keys that seal MCP's requestState, which a tool that asks gives its caller to send back: any process opens what another sealed."""

import logging
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from mcp.server.request_state import AESGCMRequestStateCodec, InvalidRequestState
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession
from starlette.types import ASGIApp, Receive, Scope, Send

from campus.errors import StorageError
from campus.keys.tables import SecretRow
from campus.storage import Storage

NAME = "request_state "  # How the names of their secrets begin; the time at which each was made follows.
METHODS = frozenset((b"tools/call", b"prompts/get", b"resources/read"))
"""The requests that may bring a sealed state, or be answered with one."""
SEALS_FOR = timedelta(days=30)
PUBLISHED_BEFORE = timedelta(hours=1)  # How long a new key is known to all processes before it seals anything.
OPENS_AFTER = timedelta(hours=2)  # How long a key opens what it sealed after the next one seals; a state lasts ten minutes.
READ_AGAIN_AFTER = timedelta(minutes=1)
log = logging.getLogger(__name__)


class RequestStateKeys:
    """The keys in campus's own database, as a codec of mcp. The newest that all processes know seals, and each opens what it sealed."""

    def __init__(self, storage: Storage, *, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._now = now
        self._codec: AESGCMRequestStateCodec | None = None
        self._read_at = datetime.min.replace(tzinfo=UTC)

    def seal(self, payload: bytes) -> str:
        return self._known().seal(payload)

    def unseal(self, token: str) -> bytes:
        return self._known().unseal(token)

    def _known(self) -> AESGCMRequestStateCodec:
        if self._codec is None:
            raise InvalidRequestState("the keys could not be read")
        return self._codec

    def kept_current(self, app: ASGIApp) -> ASGIApp:
        """The app of an MCP server that seals with these keys: they are read before a request that needs them, once a minute."""

        async def current(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and any(name == b"mcp-method" and value in METHODS for name, value in scope["headers"]):
                await self.refresh()
            await app(scope, receive, send)

        return current

    async def refresh(self) -> None:
        """Read the keys if it is time to; make one if there is none, or if the newest has sealed for long enough."""
        now = self._now()
        if abs(now - self._read_at) < READ_AGAIN_AFTER:
            return
        try:
            async with self._storage.read() as session:
                known = await _stored(session)
            if _is_due(known, now):
                known = await self._renewed(now)
        except StorageError as error:  # what was read before stays in use
            log.warning("keys of request states cannot be read: %s", error)
            return
        self._read_at = now
        sealing = next((row for row in known if made_at(row) <= now - PUBLISHED_BEFORE), known[-1])
        self._codec = AESGCMRequestStateCodec([sealing.value, *(row.value for row in known if row is not sealing)])

    async def _renewed(self, now: datetime) -> Sequence[SecretRow]:
        """Make a key, unless another process just did, and delete those that sealed nothing for a long time."""
        async with self._storage.write() as session:
            known = await _stored(session)
            if _is_due(known, now):
                session.add(made := SecretRow(name=f"{NAME}{now.isoformat()}", value=secrets.token_bytes(32)))
                known = [made, *known]
            for row, next_one in zip(known[1:], known, strict=False):
                if made_at(next_one) < now - PUBLISHED_BEFORE - OPENS_AFTER:
                    await session.delete(row)
        return known


def made_at(row: SecretRow) -> datetime:
    return datetime.fromisoformat(row.name.removeprefix(NAME))


async def _stored(session: AsyncSession) -> Sequence[SecretRow]:
    rows = (await session.exec(select(SecretRow).where(col(SecretRow.name).startswith(NAME)))).all()
    return sorted(rows, key=made_at, reverse=True)


def _is_due(known: Sequence[SecretRow], now: datetime) -> bool:
    return not known or made_at(known[0]) <= now - SEALS_FOR
