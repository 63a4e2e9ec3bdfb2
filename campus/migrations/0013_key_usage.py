"""What each key calls, by day and tool."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "key_usage",
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("day", "lineage", "building", "tool", name=op.f("pk_key_usage")),
    )
    op.create_index(op.f("ix_key_usage_lineage"), "key_usage", ["lineage"])
