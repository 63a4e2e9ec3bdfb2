"""The list on show is stored as it is, no longer compressed: unpacking it took a thirtieth of each start."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ROW_BYTES = 28


def upgrade() -> None:
    """Put mark and count before the columns: of the list on show, which stays unpacked, and of the archived ones."""
    _mark("latest_list", sa.column("id", sa.Integer()), keep=bytes)
    _mark("archived_set", sa.column("day", sa.Date()), keep=zlib.compress)


def _mark(name: str, key: sa.ColumnClause[Any], *, keep: Callable[[bytes], bytes]) -> None:
    connection, table = op.get_bind(), sa.table(name, key, sa.column("ranked", sa.LargeBinary()))
    for one, packed in connection.execute(sa.select(key, table.c.ranked).select_from(table)).all():
        columns = zlib.decompress(packed)
        marked = struct.pack("<8sQ", b"ranked 1", len(columns) // ROW_BYTES) + columns
        connection.execute(sa.update(table).where(key == one).values(ranked=keep(marked)))
