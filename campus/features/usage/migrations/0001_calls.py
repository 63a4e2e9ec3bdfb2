"""What each key calls."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "usage_calls",
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("opened", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("day", "lineage", "building", "tool", name=op.f("pk_usage_calls")),
    )
    op.create_index(op.f("ix_usage_calls_lineage"), "usage_calls", ["lineage"])
