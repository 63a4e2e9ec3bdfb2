"""What each key calls."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "usage_calls",
        sa.Column("day", sa.String(), primary_key=True),
        sa.Column("lineage", sa.String(), primary_key=True),
        sa.Column("building", sa.String(), primary_key=True),
        sa.Column("tool", sa.String(), primary_key=True),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("opened", sa.BigInteger(), nullable=False),
    )
    op.create_index(op.f("ix_usage_calls_lineage"), "usage_calls", ["lineage"])
