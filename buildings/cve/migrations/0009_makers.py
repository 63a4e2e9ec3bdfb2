"""Stores which key or connected client made a feed's address or a watch, and when a watch stopped because its maker had ended."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns. What was made before counts as made by the first key of its lineage, whose id is the lineage's."""
    for table in ("feed_url", "watch"):
        op.add_column(table, sa.Column("made_by", sa.String(), server_default="", nullable=False))
        op.execute(f"UPDATE {table} SET made_by = lineage")  # noqa: S608  # our own names
    op.add_column("watch", sa.Column("stopped_at", sa.BigInteger(), nullable=True))
    op.create_index(op.f("ix_watch_made_by"), "watch", ["made_by"])
