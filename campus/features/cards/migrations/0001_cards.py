"""Sales by card."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "cards_sales",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("renews", sa.String(), nullable=True),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("refunded", sa.BigInteger(), nullable=False),
        sa.Column("livemode", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("client", sa.String(), nullable=True),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("session", sa.String(), nullable=True),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("intent", sa.String(), nullable=True),
        sa.Column("dispute", sa.String(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paid_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
    )
    for name in ("ends_at", "intent", "state"):
        op.create_index(op.f(f"ix_cards_sales_{name}"), "cards_sales", [name])
