"""Calls that go on after their request, for all processes together."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("started_by", sa.String(), nullable=False),
        sa.Column("purchase", sa.LargeBinary(), nullable=True),
        sa.Column("payment", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=True),
        sa.UniqueConstraint("purchase", name=op.f("uq_tasks_purchase")),
    )
    op.create_index(op.f("ix_tasks_started_by"), "tasks", ["started_by"])
    op.create_index(op.f("ix_tasks_kept_until"), "tasks", ["kept_until"])
