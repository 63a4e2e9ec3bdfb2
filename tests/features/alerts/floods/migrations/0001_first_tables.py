"""Levels, and the outbox: targets and waiting alerts."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "level",
        sa.Column("port", sa.String(), nullable=False),
        sa.Column("metres", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("port", name=op.f("pk_level")),
    )
    op.create_table(
        "target",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("identity", sa.LargeBinary(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("verified_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_at", sa.BigInteger(), nullable=True),
        sa.Column("disabled_because", sa.String(), nullable=True),
        sa.Column("next_try_at", sa.BigInteger(), nullable=True),
        sa.Column("tried_at", sa.BigInteger(), nullable=True),
        sa.Column("hold_until", sa.BigInteger(), nullable=True),
        sa.Column("leased_until", sa.BigInteger(), nullable=True),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("failing_since", sa.BigInteger(), nullable=True),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("host", sa.String(), server_default="", nullable=False),
        sa.Column("sender", sa.String(), server_default="", nullable=False),
        sa.Column("health", sa.String(), server_default="new", nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.Column("burst", sa.Integer(), server_default="0", nullable=False),
        sa.Column("burst_since", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_target")),
        sa.UniqueConstraint("identity", name=op.f("uq_target_identity")),
    )
    with op.batch_alter_table("target", schema=None) as batch_op:
        where = sa.text("next_try_at IS NOT NULL")
        batch_op.create_index(
            "ix_target_due", ["health", "next_try_at", "sender", "host"], unique=False, sqlite_where=where, postgresql_where=where
        )
        where = sa.text("owner IS NULL")
        batch_op.create_index("ix_target_sender", ["sender", "host"], unique=False, sqlite_where=where, postgresql_where=where)
        where = sa.text("failing_since IS NOT NULL AND disabled_at IS NULL")
        batch_op.create_index("ix_target_failing", ["failing_since", "id"], unique=False, sqlite_where=where, postgresql_where=where)
        where = sa.text("disabled_at IS NOT NULL")
        batch_op.create_index("ix_target_disabled", ["disabled_at", "id"], unique=False, sqlite_where=where, postgresql_where=where)
        where = sa.text("verified_at IS NULL AND disabled_at IS NULL")
        batch_op.create_index("ix_target_unconfirmed", ["id"], unique=False, sqlite_where=where, postgresql_where=where)

    op.create_table(
        "alert",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("omitted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("omitted_since", sa.BigInteger(), nullable=True),
        sa.Column("port", sa.String(), nullable=False),
        sa.Column("metres", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_alert_target_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
    )
    with op.batch_alter_table("alert", schema=None) as batch_op:
        batch_op.create_index("ix_alert_target_id", ["target_id", "id"], unique=False)
