"""The makers of what goes on without a call, such as the address of a feed: a key or a connected client, and until when its things last."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, select

from campus.keys.lookups import Lookups
from campus.keys.repository import KEYS, ends_of
from campus.storage import Storage, among, in_snapshot

__all__ = ["MadeBy", "Maker"]

CLIENT = "client_"


class Delegate(NamedTuple):
    """What calls with a key of which it is not the holder: its name for itself, and the key's id; None once it has ended."""

    name: str
    key_id: str | None


Delegates = Callable[[Connection, Collection[str]], Mapping[str, Delegate]]
"""Finds those of a kind by their ids: what Feature(delegates=…) names."""


class MadeBy(BaseModel):
    """Who made or last changed something, as the tools that list it show it."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["key", "client"] = Field(description="client: a client that was connected with a key.")
    id: str = Field(description="Its id.")
    name: str | None = Field(description="The client's name for itself; null for a key.")
    ended: bool = Field(description="True if it was revoked or disconnected.")


class Maker(NamedTuple):
    """The key or the connected client that made something, by the id that `Caller.maker` had then.

    What it made lasts until `ends_at`, when the last key of its lineage ends, or for good until its key was revoked or the client was
    disconnected: then `ends_at` is None, and what it made has ended unless the owner keeps it. `name` is a client's name for itself.
    """

    id: str
    kind: Literal["key", "client"]
    name: str
    ends_at: datetime | None

    def has_ended(self, now: datetime) -> bool:
        """True when nothing that it made may go on."""
        return self.ends_at is None or now >= self.ends_at

    @property
    def shown(self) -> MadeBy:
        """As tools show it to callers of the same lineage."""
        return MadeBy(kind=self.kind, id=self.id, name=self.name or None, ended=self.ends_at is None)


class Makers:
    """Finds makers; what was read is used for 5 seconds, so that a change by another process shows within that time."""

    def __init__(self, storage: Storage, *, monotonic: Callable[[], float], delegates: Sequence[Delegates] = ()) -> None:
        self._storage = storage
        self._delegates = delegates
        self._lookups = Lookups(self._read, monotonic=monotonic)

    async def find(self, maker: str) -> Maker:
        """The maker with this id, read from the database when needed; callers that wait share the next statement."""
        key = maker.encode()
        return self._lookups.known(key) or await self._lookups.find(key)

    async def all_of(self, makers: Collection[str]) -> Mapping[str, Maker]:
        return await in_snapshot(self._storage, lambda connection: _makers(connection, makers, self._delegates))

    def forget(self) -> None:
        self._lookups.clear()

    async def _read(self, keys: Collection[bytes]) -> Mapping[bytes, Maker]:
        found = await self.all_of([key.decode() for key in keys])
        return {maker.encode(): found[maker] for maker in found}


def _makers(connection: Connection, makers: Collection[str], readers: Sequence[Delegates]) -> Mapping[str, Maker]:
    """The makers, each with its end. A client that is not found was disconnected long ago."""
    clients = {maker: client for read in readers for maker, client in read(connection, makers).items()}
    keys = {maker: clients[maker].key_id if maker in clients else maker for maker in makers}
    chosen = select(KEYS.c.id, KEYS.c.lineage).where(among(connection, KEYS.c.id, set(filter(None, keys.values()))))
    lineages = {row.id: row.lineage for row in connection.execute(chosen.where(KEYS.c.revoked_at.is_(None)))}
    ends = ends_of(connection, set(lineages.values()))
    return {
        maker: Maker(
            maker,
            "client" if maker.startswith(CLIENT) else "key",
            clients[maker].name if maker in clients else "",
            ends.get(lineages.get(key or "", "")),
        )
        for maker, key in keys.items()
    }
