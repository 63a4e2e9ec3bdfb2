"""Which settled payments the chain has shown, where, and since when it does not show the others."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns. What settled before counts as proven; `campus ledger reconcile` looks it up again."""
    op.add_column("payments", sa.Column("block", sa.BigInteger(), nullable=True))
    for name in ("unproven_since", "overdue_at"):
        op.add_column("payments", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
        op.create_index(op.f(f"ix_payments_{name}"), "payments", [name])
    op.create_index(op.f("ix_payments_transaction"), "payments", ["transaction"])
