"""Creates the tables of watches: owners, watches, their news, and the targets and messages of the outbox."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the five tables."""
    _create_owners_and_targets()
    _create_watches()
    _create_alerts()


def _create_owners_and_targets() -> None:
    op.create_table(
        "watch_owner",
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("paused_at", sa.BigInteger(), nullable=True),
        sa.Column("asked_on", sa.Integer(), nullable=False),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("lineage", name=op.f("pk_watch_owner")),
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
        sa.Column("host", sa.String(), server_default="", nullable=False),
        sa.Column("sender", sa.String(), server_default="", nullable=False),
        sa.Column("health", sa.String(), server_default="new", nullable=False),
        sa.Column("answered_at", sa.BigInteger(), nullable=True),
        sa.Column("burst", sa.Integer(), server_default="0", nullable=False),
        sa.Column("burst_since", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_target")),
        sa.UniqueConstraint("identity", name=op.f("uq_target_identity")),
    )
    _index_where("ix_target_due", ["health", "next_try_at", "sender", "host"], "next_try_at IS NOT NULL")
    _index_where("ix_target_sender", ["sender", "host"], "owner IS NULL")


def _create_watches() -> None:
    op.create_table(
        "watch",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("criteria", sa.LargeBinary(), nullable=False),
        sa.Column("least_score", sa.Float(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("webhook_id", sa.String(), nullable=True),
        sa.Column("email_id", sa.String(), nullable=True),
        sa.Column("known", sa.LargeBinary(), nullable=False),
        sa.Column("needs_baseline", sa.Boolean(), nullable=False),
        sa.Column("nvd_complete", sa.Boolean(), nullable=False),
        sa.Column("told", sa.Integer(), nullable=False),
        sa.Column("last_news_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["lineage"], ["watch_owner.lineage"], name=op.f("fk_watch_lineage")),
        sa.ForeignKeyConstraint(["webhook_id"], ["target.id"], name=op.f("fk_watch_webhook_id")),
        sa.ForeignKeyConstraint(["email_id"], ["target.id"], name=op.f("fk_watch_email_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_watch")),
    )
    for column in ("lineage", "least_score", "webhook_id", "email_id"):
        op.create_index(op.f(f"ix_watch_{column}"), "watch", [column])
    op.create_table(
        "watch_news",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("watch_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("found", sa.Integer(), nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["watch_id"], ["watch.id"], name=op.f("fk_watch_news_watch_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_watch_news")),
        sqlite_autoincrement=True,
    )
    for column in ("watch_id", "at"):
        op.create_index(op.f(f"ix_watch_news_{column}"), "watch_news", [column])


def _create_alerts() -> None:
    op.create_table(
        "alert",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("watch_id", sa.String(), nullable=True),
        sa.Column("news", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_alert_target_id")),
        sa.ForeignKeyConstraint(["watch_id"], ["watch.id"], name=op.f("fk_alert_watch_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["news"], ["watch_news.number"], name=op.f("fk_alert_news"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
    )
    op.create_index("ix_alert_target_id", "alert", ["target_id", "id"])
    for column in ("watch_id", "news"):
        op.create_index(op.f(f"ix_alert_{column}"), "alert", [column])


def _index_where(name: str, columns: list[str], condition: str) -> None:
    op.create_index(name, "target", columns, sqlite_where=sa.text(condition), postgresql_where=sa.text(condition))
