"""The audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "audit_log",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.String(), nullable=True),
        sa.Column("frame", sa.String(), nullable=True),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
    )
    op.create_index(op.f("ix_audit_log_at"), "audit_log", ["at"])
