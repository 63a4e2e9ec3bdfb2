"""Every table of the core: jobs, keys and what belongs to them."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = None

SQLITE_GUARD = """
    CREATE TRIGGER {table}_{change} BEFORE {change} ON {table}
    BEGIN SELECT RAISE(ABORT, '{sentence}'); END
"""
POSTGRES_REFUSAL = """
    CREATE FUNCTION {table}_refusal() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION '{sentence}'; END $$
"""
POSTGRES_GUARD = """
    CREATE TRIGGER {table}_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION {table}_refusal()
"""


def upgrade() -> None:
    """Make the tables; key_events refuses every change but a new row."""
    _make_jobs()
    _make_secrets()
    _make_keys()
    _make_key_events()
    _make_sessions()
    _make_sent_forms()
    _make_key_sales()


def _make_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("holder", sa.String(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_started", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_success", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
    )


def _make_secrets() -> None:
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("value", sa.LargeBinary(), nullable=False),
    )


def _make_keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("replaced_by", sa.String(), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["replaced_by"], ["keys.id"], name=op.f("fk_keys_replaced_by")),
        sa.UniqueConstraint("digest", name=op.f("uq_keys_digest")),
    )
    op.create_index("ix_keys_issued_at_id", "keys", ["issued_at", "id"])


def _make_key_events() -> None:
    op.create_table(
        "key_events",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_key_events_key_id")),
    )
    op.create_index(op.f("ix_key_events_key_id"), "key_events", ["key_id"])
    _refuse_changes("key_events", "key_events only grows")


def _make_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_sessions_key_id")),
    )
    op.create_index(op.f("ix_sessions_ends_at"), "sessions", ["ends_at"])


def _make_sent_forms() -> None:
    op.create_table(
        "sent_forms",
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index(op.f("ix_sent_forms_sent_at"), "sent_forms", ["sent_at"])


def _make_key_sales() -> None:
    op.create_table(
        "key_sales",
        sa.Column("payment", sa.String(), primary_key=True),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("term", sa.String(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
    )
    op.create_index(op.f("ix_key_sales_key_id"), "key_sales", ["key_id"])


def _refuse_changes(table: str, sentence: str) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRES_REFUSAL.format(table=table, sentence=sentence))
        op.execute(POSTGRES_GUARD.format(table=table))
    else:
        for change in ("UPDATE", "DELETE"):
            op.execute(SQLITE_GUARD.format(table=table, change=change, sentence=sentence))
