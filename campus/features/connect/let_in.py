"""The client programs that keys' holders let in by OAuth, as the holders see them: listed, shut out, and known as makers of things."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection
from sqlalchemy import select as select_columns
from sqlmodel import col, select
from sqlmodel.ext.asyncio.session import AsyncSession

from campus.features.connect.tables import ClientRow, Tables, TokenRow
from campus.keys.makers import Delegate
from campus.keys.tables import KeyRow
from campus.storage import Storage, among

CLIENTS = Tables.metadata.tables["connect_clients"].c


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
    joined = select(ClientRow, KeyRow).join(KeyRow, col(KeyRow.id) == col(ClientRow.key_id))
    chosen = joined.where(col(KeyRow.lineage) == lineage, col(ClientRow.ends_at).is_(None))
    async with storage.read() as session:
        rows = (await session.exec(chosen.order_by(col(ClientRow.connected_at).desc()))).all()
    return [
        ConnectedClient(client.id, client.building, client.client_name, client.returns_to, client.connected_at)
        for client, key in rows
        if opens(key) and not key.key().has_ended(now)
    ]


async def disconnect(storage: Storage, client: str, *, lineage: str, now: datetime) -> list[bytes]:
    """End a client by its id, if a key of the lineage let it in; returns the digests of its access tokens."""
    joined = select(ClientRow).join(KeyRow, col(KeyRow.id) == col(ClientRow.key_id))
    async with storage.write() as session:
        chosen = joined.where(col(ClientRow.id) == client, col(KeyRow.lineage) == lineage)
        row = (await session.exec(chosen)).one_or_none()
        return await end_client(session, row, now) if row else []


async def end_client(session: AsyncSession, client: ClientRow, now: datetime) -> list[bytes]:
    """End a client; returns the digests of its access tokens."""
    client.ends_at = now
    own = col(TokenRow.client) == client.id, col(TokenRow.kind) == "access"
    return list((await session.exec(select(TokenRow.digest).where(*own))).all())


def delegates(connection: Connection, ids: Collection[str]) -> Mapping[str, Delegate]:
    """Those of these makers that are clients."""
    rows = connection.execute(
        select_columns(CLIENTS.id, CLIENTS.client_name, CLIENTS.key_id, CLIENTS.ends_at).where(among(connection, CLIENTS.id, ids))
    )
    return {row.id: Delegate(row.client_name, row.key_id if row.ends_at is None else None) for row in rows}
