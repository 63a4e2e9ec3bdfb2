"""What calls take from keys: while they run, for good, and what they answered."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "credits_holds",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("period", sa.String(), nullable=False),
        sa.Column("purchase", sa.LargeBinary(), nullable=True),
        sa.Column("lease_until", sa.BigInteger(), nullable=False),
    )
    op.create_index(op.f("ix_credits_holds_lineage"), "credits_holds", ["lineage"])
    op.create_index(op.f("ix_credits_holds_lease_until"), "credits_holds", ["lease_until"])
    op.create_table(
        "credits_calls",
        sa.Column("day", sa.String(), primary_key=True),
        sa.Column("lineage", sa.String(), primary_key=True),
        sa.Column("building", sa.String(), primary_key=True),
        sa.Column("tool", sa.String(), primary_key=True),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.Column("allowed", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
    )
    op.create_index(op.f("ix_credits_calls_lineage"), "credits_calls", ["lineage"])
    op.create_table(
        "credits_answers",
        sa.Column("purchase", sa.LargeBinary(), primary_key=True),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("kept_until", sa.BigInteger(), nullable=False),
    )
    op.create_index("ix_credits_answers_lineage_size", "credits_answers", ["lineage", "size"])
    op.create_index(op.f("ix_credits_answers_kept_until"), "credits_answers", ["kept_until"])
