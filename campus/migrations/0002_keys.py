"""Keys, and the log of what was done to them."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

SQLITE_GUARD = """
    CREATE TRIGGER key_events_{change} BEFORE {change} ON key_events
    BEGIN SELECT RAISE(ABORT, 'key_events only grows'); END
"""
POSTGRES_REFUSAL = """
    CREATE FUNCTION key_events_refusal() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'key_events only grows'; END $$
"""
POSTGRES_GUARD = """
    CREATE TRIGGER key_events_guard BEFORE UPDATE OR DELETE OR TRUNCATE ON key_events
    FOR EACH STATEMENT EXECUTE FUNCTION key_events_refusal()
"""


def upgrade() -> None:
    """Make the two tables; the second refuses every change but a new row."""
    op.create_table(
        "keys",
        sa.Column("id", sa.String(), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name=op.f("pk_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_keys_digest")),
    )
    op.create_table(
        "key_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_key_events_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_key_events")),
    )
    op.create_index(op.f("ix_key_events_key_id"), "key_events", ["key_id"])
    _refuse_changes()


def _refuse_changes() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(POSTGRES_REFUSAL)
        op.execute(POSTGRES_GUARD)
    else:
        for change in ("UPDATE", "DELETE"):
            op.execute(SQLITE_GUARD.format(change=change))
