"""The list on show is stored as it is, no longer compressed: unpacking it took a thirtieth of each start."""

import zlib

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Unpack the one row that there is, if there is one."""
    lists = sa.table("latest_list", sa.column("id", sa.Integer()), sa.column("ranked", sa.LargeBinary()))
    connection = op.get_bind()
    for key, ranked in connection.execute(sa.select(lists.c.id, lists.c.ranked)).all():
        connection.execute(sa.update(lists).where(lists.c.id == key).values(ranked=zlib.decompress(ranked)))
