"""Payments, and the ledger of what happened to them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

SQLITE_GUARD = """
    CREATE TRIGGER ledger_{change} BEFORE {change} ON ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END
"""
POSTGRES_REFUSAL = """
    CREATE FUNCTION ledger_refusal() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the ledger only grows'; END $$
"""
POSTGRES_GUARD = """
    CREATE TRIGGER ledger_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_refusal()
"""


def upgrade() -> None:
    """Make the two tables; the second refuses every change but a new row."""
    _make_payments()
    _make_ledger()
    _refuse_changes()


def _make_payments() -> None:
    op.create_table(
        "payments",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("network", sa.String(), nullable=False),
        sa.Column("asset", sa.String(), nullable=False),
        sa.Column("payer", sa.String(), nullable=False),
        sa.Column("nonce", sa.String(), nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("pay_to", sa.String(), nullable=False),
        sa.Column("valid_before", sa.BigInteger(), nullable=False),
        sa.Column("payment", sa.LargeBinary(), nullable=False),
        sa.Column("resource", sa.LargeBinary(), nullable=False),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("frame", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reserved_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("transaction", sa.String(), nullable=True),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("answer_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.Column("purchase", sa.LargeBinary(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_payments")),
        sa.UniqueConstraint("network", "asset", "payer", "nonce", name=op.f("uq_payments_authorization")),
        sa.UniqueConstraint("purchase", name=op.f("uq_payments_purchase")),
    )
    op.create_index(op.f("ix_payments_state"), "payments", ["state"])
    op.create_index(op.f("ix_payments_answer_until"), "payments", ["answer_until"])


def _make_ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("tool", sa.String(), nullable=False),
        sa.Column("frame", sa.String(), nullable=False),
        sa.Column("quantity", sa.Integer(), nullable=False),
        sa.Column("payment_id", sa.String(), nullable=True),
        sa.Column("network", sa.String(), nullable=True),
        sa.Column("asset", sa.String(), nullable=True),
        sa.Column("payer", sa.String(), nullable=True),
        sa.Column("amount", sa.BigInteger(), nullable=True),
        sa.Column("transaction", sa.String(), nullable=True),
        sa.Column("detail", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_ledger")),
    )
    op.create_index(op.f("ix_ledger_at"), "ledger", ["at"])
    op.create_index(op.f("ix_ledger_payment_id"), "ledger", ["payment_id"])


def _refuse_changes() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRES_REFUSAL)
        op.execute(POSTGRES_GUARD)
    else:
        for change in ("UPDATE", "DELETE"):
            op.execute(SQLITE_GUARD.format(change=change))
