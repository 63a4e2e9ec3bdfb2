"""Targets say whose turn depends on what: their host, on whose behalf they are sent to, and how they took what they were sent."""

from urllib.parse import urlsplit

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and fill them, then the index by which lanes are found."""
    with op.batch_alter_table("target", schema=None) as batch_op:
        batch_op.add_column(sa.Column("host", sa.String(), server_default="", nullable=False))
        batch_op.add_column(sa.Column("sender", sa.String(), server_default="", nullable=False))
        batch_op.add_column(sa.Column("health", sa.String(), server_default="new", nullable=False))
        batch_op.add_column(sa.Column("answered_at", sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column("burst", sa.Integer(), server_default="0", nullable=False))
        batch_op.add_column(sa.Column("burst_since", sa.BigInteger(), nullable=True))
    fill()
    with op.batch_alter_table("target", schema=None) as batch_op:
        batch_op.drop_index("ix_target_next_try_at")
        batch_op.create_index(
            "ix_target_due",
            ["health", "next_try_at", "sender", "host"],
            unique=False,
            sqlite_where=sa.text("next_try_at IS NOT NULL"),
            postgresql_where=sa.text("next_try_at IS NOT NULL"),
        )
        batch_op.create_index(
            "ix_target_sender",
            ["sender", "host"],
            unique=False,
            sqlite_where=sa.text("owner IS NULL"),
            postgresql_where=sa.text("owner IS NULL"),
        )


def fill() -> None:
    """Who registered a target without a key is not known: each counts as a sender by itself."""
    connection = op.get_bind()
    target = sa.table("target", *(sa.column(name) for name in ("id", "kind", "address", "owner", "host", "sender")))
    rows = connection.execute(sa.select(target.c.id, target.c.kind, target.c.address, target.c.owner)).all()
    filled = [
        {
            "key": target_id,
            "at": "email" if kind == "email" else urlsplit(address).hostname or "",
            "by": f"key:{owner}" if owner is not None else f"target:{target_id}",
        }
        for target_id, kind, address, owner in rows
    ]
    if filled:
        by_id = sa.update(target).where(target.c.id == sa.bindparam("key"))
        connection.execute(by_id.values(host=sa.bindparam("at"), sender=sa.bindparam("by")), filled)
    connection.execute(sa.text("UPDATE target SET health = 'suspect' WHERE failing_since IS NOT NULL"))
    answered = "tried_at IS NOT NULL AND failing_since IS NULL AND disabled_at IS NULL"
    connection.execute(sa.text(f"UPDATE target SET health = 'proven', answered_at = tried_at WHERE {answered}"))  # noqa: S608  # our own text
