"""Payments, the secret that seals signed ones until they are charged, and the ledger, which refuses every change but a new row."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

SQLITE_GUARD = """
    CREATE TRIGGER payments_ledger_{change} BEFORE {change} ON payments_ledger
    BEGIN SELECT RAISE(ABORT, 'the ledger only grows'); END
"""
POSTGRES_REFUSAL = """
    CREATE FUNCTION payments_ledger_refusal() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the ledger only grows'; END $$
"""
POSTGRES_GUARD = """
    CREATE TRIGGER payments_ledger_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON payments_ledger
    FOR EACH STATEMENT EXECUTE FUNCTION payments_ledger_refusal()
"""


def upgrade() -> None:
    """Make the tables and the secret."""
    _make_payments()
    _make_ledger()


def _make_payments() -> None:
    op.create_table(
        "payments",
        sa.Column("id", sa.String(), primary_key=True),
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
        sa.Column("client", sa.String(), nullable=True),
        sa.Column("block", sa.BigInteger(), nullable=True),
        sa.Column("unproven_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("overdue_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("signed", sa.LargeBinary(), nullable=True),
        sa.Column("submissions", sa.Integer(), nullable=False, server_default="0"),
        sa.UniqueConstraint("network", "asset", "payer", "nonce", name=op.f("uq_payments_authorization")),
        sa.UniqueConstraint("purchase", "payer", name=op.f("uq_payments_purchase_payer")),
    )
    for name in ("answer_until", "overdue_at", "state", "transaction", "unproven_since"):
        op.create_index(op.f(f"ix_payments_{name}"), "payments", [name])
    made = sa.text("INSERT INTO secrets (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING")
    op.execute(made.bindparams(sa.bindparam("name", "payments"), sa.bindparam("value", secrets.token_bytes(32), sa.LargeBinary())))


def _make_ledger() -> None:
    op.create_table(
        "payments_ledger",
        sa.Column("id", sa.Integer(), primary_key=True),
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
    )
    op.create_index(op.f("ix_payments_ledger_at"), "payments_ledger", ["at"])
    op.create_index(op.f("ix_payments_ledger_payment_id"), "payments_ledger", ["payment_id"])
    _refuse_changes()


def _refuse_changes() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRES_REFUSAL)
        op.execute(POSTGRES_GUARD)
    else:
        for change in ("UPDATE", "DELETE"):
            op.execute(SQLITE_GUARD.format(change=change))
