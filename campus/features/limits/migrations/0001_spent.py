"""What callers have spent of their limits, in all processes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the table. In PostgreSQL it is unlogged: it holds a minute, and nobody waits for a disk or a standby to store it."""
    op.create_table(
        "limits_spent",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("missing", sa.Double(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        prefixes=["UNLOGGED"] if op.get_bind().dialect.name == "postgresql" else [],
    )
