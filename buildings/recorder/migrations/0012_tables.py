"""Monitors, their capsules and owners, the targets of alerts, the outbox and what was delivered, and outages of the recorder."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = None


def upgrade() -> None:
    _make_independent_tables()
    _make_targets()
    _make_monitors()
    _make_tables_of_monitors()
    _make_alerts()


def _make_independent_tables() -> None:
    op.create_table(
        "owner",
        sa.Column("lineage", sa.String(), primary_key=True),
        sa.Column("badge_id", sa.String(), nullable=False),
        sa.Column("badge_secret", sa.LargeBinary(), nullable=False),
        sa.Column("monitors", sa.Integer(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.UniqueConstraint("badge_id", name=op.f("uq_owner_badge_id")),
    )
    op.create_table(
        "reply",
        sa.Column("key_digest", sa.LargeBinary(), primary_key=True),
        sa.Column("request_digest", sa.LargeBinary(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "tick",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "outage",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("lost_by", sa.BigInteger(), nullable=False),
        sa.Column("moved_to", sa.String(), nullable=True),
        sa.Column("told_to", sa.String(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=True),
    )


def _make_targets() -> None:
    op.create_table(
        "target",
        sa.Column("id", sa.String(), primary_key=True),
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
        sa.ForeignKeyConstraint(["owner"], ["owner.lineage"], name=op.f("fk_target_owner")),
        sa.UniqueConstraint("identity", name=op.f("uq_target_identity")),
    )
    _index_where("ix_target_due", "target", ["health", "next_try_at", "sender", "host"], "next_try_at IS NOT NULL")
    _index_where("ix_target_sender", "target", ["sender", "host"], "owner IS NULL")
    _index_where("ix_target_failing", "target", ["failing_since", "id"], "failing_since IS NOT NULL AND disabled_at IS NULL")
    _index_where("ix_target_disabled", "target", ["disabled_at", "id"], "disabled_at IS NOT NULL")
    _index_where("ix_target_unconfirmed", "target", ["id"], "verified_at IS NULL AND disabled_at IS NULL")


def _make_monitors() -> None:
    op.create_table(
        "monitor",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("secret_digest", sa.LargeBinary(), nullable=False),
        sa.Column("badge_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
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
        sa.Column("expiry_told_at", sa.BigInteger(), nullable=True),
        sa.Column("first_beat_at", sa.BigInteger(), nullable=True),
        sa.Column("made_by", sa.String(), nullable=True),
        sa.Column("due_at", sa.BigInteger(), nullable=True),
        sa.Column("options", sa.LargeBinary(), nullable=True),
        sa.Column("plain", sa.Boolean(), nullable=False),
        sa.Column("ping_digest", sa.LargeBinary(), nullable=False),
        sa.Column("page_digest", sa.LargeBinary(), nullable=True),
        sa.Column("slug", sa.String(), nullable=True),
        sa.Column("tags", sa.String(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("progress", sa.LargeBinary(), nullable=True),
        sa.Column("unchanged", sa.Integer(), nullable=False),
        sa.Column("session", sa.LargeBinary(), nullable=True),
        sa.Column("held", sa.String(), nullable=True),
        sa.Column("held_since", sa.BigInteger(), nullable=True),
        sa.Column("muted_until", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_at", sa.BigInteger(), nullable=True),
        sa.Column("reminded_at", sa.BigInteger(), nullable=True),
        sa.Column("followed_up", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["owner"], ["owner.lineage"], name=op.f("fk_monitor_owner")),
        sa.UniqueConstraint("badge_id", name=op.f("uq_monitor_badge_id")),
        sa.UniqueConstraint("ping_digest", name=op.f("uq_monitor_ping_digest")),
        sa.UniqueConstraint("page_digest", name=op.f("uq_monitor_page_digest")),
    )
    _index_where("ix_monitor_due", "monitor", ["due_at"], "due_at IS NOT NULL")
    _index_where("ix_monitor_slug", "monitor", ["owner", "slug"], "slug IS NOT NULL AND owner IS NOT NULL", unique=True)
    op.create_index("ix_monitor_owner", "monitor", ["owner", "id"])
    if op.get_bind().dialect.name == "postgresql":  # pages keep room for the next version of their rows
        op.execute("ALTER TABLE monitor SET (fillfactor = 75)")


def _make_tables_of_monitors() -> None:
    op.create_table(
        "monitor_target",
        sa.Column("monitor_id", sa.String(), primary_key=True),
        sa.Column("target_id", sa.String(), primary_key=True),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("kinds", sa.String(), nullable=True),
        sa.Column("after", sa.BigInteger(), nullable=True),
        sa.Column("told", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_monitor_target_monitor_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_monitor_target_target_id")),
    )
    op.create_index(op.f("ix_monitor_target_target_id"), "monitor_target", ["target_id"])
    op.create_table(
        "capsule",
        sa.Column("monitor_id", sa.String(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_capsule_monitor_id"), ondelete="CASCADE"),
    )
    op.create_table(
        "run",
        sa.Column("monitor_id", sa.String(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("rid", sa.String(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("limit_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("result", sa.String(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("session", sa.String(), nullable=True),
        sa.Column("agent", sa.String(), nullable=True),
        sa.Column("output", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_run_monitor_id"), ondelete="CASCADE"),
    )
    op.create_table(
        "beat_page",
        sa.Column("monitor_id", sa.String(), primary_key=True),
        sa.Column("slot", sa.Integer(), primary_key=True),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_beat_page_monitor_id"), ondelete="CASCADE"),
    )
    op.create_table(
        "fleet_key",
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("hint", sa.String(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("made_by", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["owner"], ["owner.lineage"], name=op.f("fk_fleet_key_owner")),
    )
    op.create_index(op.f("ix_fleet_key_owner"), "fleet_key", ["owner"])
    op.create_table(
        "retired_secret",
        sa.Column("monitor_id", sa.String(), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_retired_secret_monitor_id"), ondelete="CASCADE"),
    )


def _make_alerts() -> None:
    op.create_table(
        "alert",
        sa.Column("id", sa.Integer(), primary_key=True),
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
        sa.Column("omitted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("omitted_since", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_alert_monitor_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_alert_target_id")),
        sa.UniqueConstraint("monitor_id", "epoch", "kind", "target_id", name="uq_alert_monitor_id"),
    )
    op.create_index("ix_alert_target_id", "alert", ["target_id", "id"])
    op.create_table(
        "delivery",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger(), nullable=False),
        sa.Column("monitor_id", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_delivery_monitor_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_delivery_target_id"), ondelete="CASCADE"),
    )
    op.create_index("ix_delivery_target_id", "delivery", ["target_id", "id"])
    op.create_index(op.f("ix_delivery_monitor_id"), "delivery", ["monitor_id"])


def _index_where(name: str, table: str, columns: list[str], condition: str, *, unique: bool = False) -> None:
    op.create_index(name, table, columns, unique=unique, sqlite_where=sa.text(condition), postgresql_where=sa.text(condition))
