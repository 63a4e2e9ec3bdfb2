"""A read replica: a standby that answers reads which may lag, while it is known to be near the primary."""

from math import inf
from time import monotonic
from typing import NamedTuple

import anyio
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from campus.storage.errors import translate_errors

MOST_LAG = 10.0
"""Seconds; a replica that is further behind is not read."""
LOOK_SECONDS = 0.2
POSITION = text(
    "WITH primary_log AS MATERIALIZED (SELECT pg_is_in_recovery() AS recovers,"
    " CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_flush_lsn() END AS lsn)"
    " SELECT CAST(system_identifier AS text) AS identifier, CAST(lsn AS text) AS lsn,"
    " CASE WHEN NOT recovers AND pg_wal_lsn_diff(lsn, '0/0') % CAST(current_setting('wal_block_size') AS integer) = 0"
    " THEN txid_current() END FROM primary_log, pg_control_system()"
)
"""A log that ends with a page may end in the middle of a record, which no standby reaches before the rest is written: the number of a
transaction has PostgreSQL write it within a second."""
COMPARED = text(
    "SELECT pg_is_in_recovery() AND CAST(system_identifier AS text) = :identifier AS is_standby,"
    " COALESCE(pg_last_wal_replay_lsn() >= CAST(CAST(:lsn AS text) AS pg_lsn), false) AS has_reached FROM pg_control_system()"
)


class Position(NamedTuple):
    """What the primary of a cluster had written when it was asked."""

    identifier: str
    lsn: str

    @staticmethod
    def of(connection: Connection) -> "Position":
        """The position now."""
        row = connection.execute(POSITION).one()
        return Position(row.identifier, row.lsn)


class Replica:
    """The replica of one process. `is_near` while it has all that the primary had written some seconds ago.

    That is seen from positions in the primary's log, which need neither clocks nor rights. While the primary is away the last finding
    holds, so that lists are read during a failover too.
    """

    def __init__(self, engine: AsyncEngine, *, description: str) -> None:
        self.is_near = False
        self._engine = engine
        self._description = description
        self._position: Position | None = None
        self._has_reached = True
        self._asked_at = self._near_at = -inf

    async def look(self, position: Position | None) -> None:
        """Compare it with the primary, which is at this position now; None if that is not known."""
        if position is not None and self._has_reached:
            self._position, self._asked_at = position, monotonic()
        if self._position is None:
            return
        try:
            is_standby, self._has_reached = await self._compared(self._position)
        except Exception:  # of any kind: the primary is read instead, and campus check says why
            self.is_near = False
            return
        if self._has_reached:
            self._near_at = self._asked_at
        held = position is None and self.is_near
        self.is_near = is_standby and (held or monotonic() - self._near_at <= MOST_LAG)

    async def findings(self, position: Position) -> list[str]:
        """Why it cannot be read, in a sentence; waits as long as it may lag. Raises StorageError if it cannot be connected to."""
        with anyio.move_on_after(MOST_LAG):
            while True:
                is_standby, has_reached = await self._compared(position)
                if not is_standby:
                    return [f"{self._description} is not a standby of [storage] url: it is not read; name one in [storage] replica"]
                if has_reached:
                    return []
                await anyio.sleep(LOOK_SECONDS)
        return [f"{self._description} is more than {MOST_LAG:g} s behind: it is not read until it has caught up"]

    async def _compared(self, position: Position) -> tuple[bool, bool]:
        with translate_errors(self._description, connecting=True):
            async with self._engine.connect() as connection:
                row = (await connection.execute(COMPARED, position._asdict())).one()
        return bool(row.is_standby), bool(row.has_reached)
