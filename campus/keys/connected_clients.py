"""The client programs that keys' holders let in by OAuth, as the holders see them: listed, and shut out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.keys.tables import ClientTokenRow, ConnectedClientRow, KeyRow
from campus.storage import Storage


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    id: str
    building: str
    name: str
    returns_to: str
    connected_at: datetime


def opens(key: KeyRow) -> bool:
    """Whether clients that the key let in may call, until the key expires: it was neither revoked nor replaced by a rotation."""
    return key.revoked_at is None and key.replaced_by is None


async def clients_of(storage: Storage, lineage: str, *, now: datetime) -> Sequence[ConnectedClient]:
    """The clients that a lineage's keys let in and that may call, the latest first."""
    joined = select(ConnectedClientRow, KeyRow).join(KeyRow, col(KeyRow.id) == col(ConnectedClientRow.key_id))
    chosen = joined.where(col(KeyRow.lineage) == lineage, col(ConnectedClientRow.ends_at).is_(None))
    async with storage.read() as session:
        rows = (await session.exec(chosen.order_by(col(ConnectedClientRow.connected_at).desc()))).all()
    return [
        ConnectedClient(client.id, client.building, client.client_name, client.returns_to, client.connected_at)
        for client, key in rows
        if opens(key) and not key.key().has_ended(now)
    ]


async def disconnect(storage: Storage, client: str, *, lineage: str, now: datetime) -> list[bytes]:
    """End a client by its id, if a key of the lineage let it in; returns the digests of its access tokens."""
    joined = select(ConnectedClientRow).join(KeyRow, col(KeyRow.id) == col(ConnectedClientRow.key_id))
    async with storage.write() as session:
        chosen = joined.where(col(ConnectedClientRow.id) == client, col(KeyRow.lineage) == lineage)
        row = (await session.exec(chosen)).one_or_none()
        return await end_client(session, row, now) if row else []


async def end_client(session: AsyncSession, client: ConnectedClientRow, now: datetime) -> list[bytes]:
    """End a client; returns the digests of its access tokens."""
    client.ends_at = now
    own = col(ClientTokenRow.connected_client) == client.id, col(ClientTokenRow.kind) == "access"
    return list((await session.exec(select(ClientTokenRow.digest).where(*own))).all())
