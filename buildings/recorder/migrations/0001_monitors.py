"""Monitors, their capsules and owners, the targets of alerts, and the outbox."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the eight tables."""
    make_what_stands_alone()
    make_targets()
    make_monitors()
    make_what_belongs_to_monitors()


def make_what_stands_alone() -> None:
    """Owners, answers that may be repeated, and the time of the last sweep."""
    op.create_table(
        "owner",
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("monitors", sa.Integer(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("asked_on", sa.Integer(), nullable=False),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("lineage", name=op.f("pk_owner")),
    )
    op.create_table(
        "reply",
        sa.Column("key_digest", sa.LargeBinary(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("key_digest", name=op.f("pk_reply")),
    )
    op.create_table(
        "tick",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tick")),
    )


def make_targets() -> None:
    """The targets of alerts."""
    op.create_table(
        "target",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("identity", sa.LargeBinary(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("verified_at", sa.BigInteger(), nullable=True),
        sa.Column("asked_at", sa.BigInteger(), nullable=True),
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
        sa.ForeignKeyConstraint(["owner"], ["owner.lineage"], name=op.f("fk_target_owner")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_target")),
        sa.UniqueConstraint("identity", name=op.f("uq_target_identity")),
    )
    with op.batch_alter_table("target", schema=None) as batch_op:
        batch_op.create_index(
            "ix_target_next_try_at",
            ["next_try_at"],
            unique=False,
            sqlite_where=sa.text("next_try_at IS NOT NULL"),
            postgresql_where=sa.text("next_try_at IS NOT NULL"),
        )


def make_monitors() -> None:
    """The monitors."""
    op.create_table(
        "monitor",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("secret_digest", sa.LargeBinary(), nullable=False),
        sa.Column("badge_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("webhook", sa.String(), nullable=True),
        sa.Column("email", sa.String(), nullable=True),
        sa.Column("period", sa.BigInteger(), nullable=False),
        sa.Column("grace", sa.BigInteger(), nullable=False),
        sa.Column("registered_at", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.String(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("alive_at", sa.BigInteger(), nullable=False),
        sa.Column("expected_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("run_since", sa.BigInteger(), nullable=True),
        sa.Column("down", sa.BigInteger(), nullable=False),
        sa.Column("still", sa.BigInteger(), nullable=False),
        sa.Column("unverified", sa.Boolean(), nullable=False),
        sa.Column("last_beat_at", sa.BigInteger(), nullable=True),
        sa.Column("beats", sa.BigInteger(), nullable=False),
        sa.Column("history", sa.LargeBinary(), nullable=False),
        sa.Column("minute", sa.Integer(), nullable=False),
        sa.Column("minute_beats", sa.Integer(), nullable=False),
        sa.Column("capsules", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=True),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["email"], ["target.id"], name=op.f("fk_monitor_email")),
        sa.ForeignKeyConstraint(["owner"], ["owner.lineage"], name=op.f("fk_monitor_owner")),
        sa.ForeignKeyConstraint(["webhook"], ["target.id"], name=op.f("fk_monitor_webhook")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_monitor")),
        sa.UniqueConstraint("badge_id", name=op.f("uq_monitor_badge_id")),
    )
    with op.batch_alter_table("monitor", schema=None) as batch_op:
        batch_op.create_index(
            "ix_monitor_due", ["deadline_at"], unique=False, sqlite_where=sa.text("mode = 'up'"), postgresql_where=sa.text("mode = 'up'")
        )
        batch_op.create_index(batch_op.f("ix_monitor_email"), ["email"], unique=False)
        batch_op.create_index("ix_monitor_owner", ["owner", "id"], unique=False)
        batch_op.create_index(batch_op.f("ix_monitor_webhook"), ["webhook"], unique=False)


def make_what_belongs_to_monitors() -> None:
    """Alerts, capsules and retired secrets."""
    op.create_table(
        "alert",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("monitor_id", sa.String(), nullable=True),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("last_beat_at", sa.BigInteger(), nullable=True),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_alert_monitor_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_alert_target_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
        sa.UniqueConstraint("monitor_id", "epoch", "kind", "target_id", name="uq_alert_monitor_id"),
    )
    with op.batch_alter_table("alert", schema=None) as batch_op:
        batch_op.create_index("ix_alert_target_id", ["target_id", "id"], unique=False)

    op.create_table(
        "capsule",
        sa.Column("monitor_id", sa.String(), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_capsule_monitor_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("monitor_id", "slot", name=op.f("pk_capsule")),
    )
    op.create_table(
        "retired_secret",
        sa.Column("monitor_id", sa.String(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_retired_secret_monitor_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("monitor_id", "digest", name=op.f("pk_retired_secret")),
    )
