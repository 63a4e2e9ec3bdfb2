"""CVEs, lists and their archive, feeds, forecasts and their grades, the history of EPSS, and watches with their outbox."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = None
CVE_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _create_lists()
    _create_feeds()
    _create_forecasts()
    _create_epss()
    _create_cves()
    _create_names()
    _create_owners_and_targets()
    _create_watches()
    _create_alerts()


def _create_lists() -> None:
    op.create_table(
        "latest_list",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("facts", sa.String(), nullable=False),
    )
    op.create_table(
        "ranked",
        sa.Column("number", CVE_NUMBER, autoincrement=False, primary_key=True),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("epss", sa.Float(), nullable=True),
        sa.Column("percentile", sa.Float(), nullable=True),
    )
    op.create_table(
        "brief_edition",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("edition", sa.Integer(), primary_key=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("brief", sa.String(), nullable=False),
    )
    op.create_table(
        "edition_cve",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("edition", sa.Integer(), primary_key=True),
        sa.Column("number", sa.BigInteger(), autoincrement=False, primary_key=True),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("epss", sa.Float(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "kev_change",
        sa.Column("number", sa.BigInteger(), autoincrement=False, primary_key=True),
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("edition", sa.Integer(), primary_key=True),
        sa.Column("entry", sa.String(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ransomware_flip",
        sa.Column("cve_id", sa.String(), primary_key=True),
        sa.Column("day", sa.Date(), primary_key=True),
    )


def _create_feeds() -> None:
    op.create_table(
        "feed_state",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("etag", sa.String(), nullable=True),
        sa.Column("last_modified", sa.String(), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failure", sa.String(), nullable=True),
    )
    op.create_table(
        "feed_url",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("made_by", sa.String(), server_default="", nullable=False),
        sa.UniqueConstraint("digest", name=op.f("uq_feed_url_digest")),
    )
    op.create_index(op.f("ix_feed_url_lineage"), "feed_url", ["lineage"])


def _create_forecasts() -> None:
    op.create_table(
        "archived_forecast",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("forecast", sa.String(), nullable=False),
    )
    op.create_table(
        "ranking_order",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("ranking", sa.String(), primary_key=True),
        sa.Column("leading", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("numbers", sa.String(), nullable=False),
        sa.Column("grade", sa.String(), nullable=True),
        sa.Column("is_final", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "graded_record",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("record", sa.String(), nullable=False),
    )


def _create_epss() -> None:
    op.create_table(
        "epss_day",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("model", sa.String(), nullable=False),
    )
    op.create_table(
        "epss_change",
        sa.Column("number", sa.BigInteger(), autoincrement=False, primary_key=True),
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("epss", sa.Float(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_epss_change_day"), "epss_change", ["day"])


def _create_cves() -> None:
    op.create_table(
        "cve",
        sa.Column("number", CVE_NUMBER, autoincrement=False, primary_key=True),
        sa.Column("kev_added", sa.Date(), nullable=True),
        sa.Column("kev_due", sa.Date(), nullable=True),
        sa.Column("kev_ransomware", sa.Boolean(), nullable=True),
        sa.Column("kev_entry", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=True),
        sa.Column("published", sa.Date(), nullable=True),
        sa.Column("modified", sa.Date(), nullable=True),
        sa.Column("severity", sa.String(), nullable=True),
        sa.Column("severity_source", sa.String(), nullable=True),
        sa.Column("cvss", sa.Float(), nullable=True),
        sa.Column("patch_status", sa.String(), nullable=True),
        sa.Column("exploit_url", sa.String(), nullable=True),
        sa.Column("vendor", sa.String(), nullable=True),
        sa.Column("product", sa.String(), nullable=True),
        sa.Column("exploitation", sa.String(), nullable=True),
        sa.Column("automatable", sa.String(), nullable=True),
        sa.Column("technical_impact", sa.String(), nullable=True),
    )
    op.create_index(op.f("ix_cve_kev_added"), "cve", ["kev_added"])
    op.create_index(op.f("ix_cve_kev_due"), "cve", ["kev_due"])
    op.create_index(op.f("ix_cve_published"), "cve", ["published"])
    op.create_index(op.f("ix_cve_severity"), "cve", ["severity"])
    op.create_table(
        "cve_detail",
        sa.Column("number", CVE_NUMBER, autoincrement=False, primary_key=True),
        sa.Column("record", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
    )
    op.create_table(
        "cve_product",
        sa.Column("number", sa.BigInteger(), autoincrement=False, primary_key=True),
        sa.Column("vendor", sa.String(), primary_key=True),
        sa.Column("product", sa.String(), primary_key=True),
        sa.Column("of_kev", sa.Boolean(), primary_key=True),
        sa.Column("plain_vendor", sa.String(), nullable=False),
        sa.Column("plain_product", sa.String(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_cve_product_plain_vendor", "cve_product", ["plain_vendor", "number"])
    op.create_index("ix_cve_product_plain_product", "cve_product", ["plain_product", "number", "plain_vendor"])
    op.create_table(
        "cve_weakness",
        sa.Column("number", sa.BigInteger(), autoincrement=False, primary_key=True),
        sa.Column("cwe", sa.String(), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_cve_weakness_cwe"), "cve_weakness", ["cwe"])
    op.create_table(
        "alias",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("number", sa.BigInteger(), autoincrement=False, primary_key=True),
        sa.Column("source", sa.String(), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_alias_number"), "alias", ["number"])
    op.create_index(op.f("ix_alias_source"), "alias", ["source"])
    op.create_table(
        "nvd_state",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("position", sa.String(), nullable=True),
    )


def _create_names() -> None:
    op.create_table(
        "alias_source",
        sa.Column("ecosystem", sa.String(), primary_key=True),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("newest", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recent", sa.String(), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("whole_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "unknown_word",
        sa.Column("feed", sa.String(), primary_key=True),
        sa.Column("kind", sa.String(), primary_key=True),
        sa.Column("word", sa.String(), primary_key=True),
        sa.Column("taken_as", sa.String(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("first_day", sa.Date(), nullable=False),
        sa.Column("last_day", sa.Date(), nullable=False),
    )


def _create_owners_and_targets() -> None:
    op.create_table(
        "watch_owner",
        sa.Column("lineage", sa.String(), primary_key=True),
        sa.Column("ends_at", sa.BigInteger(), nullable=False),
        sa.Column("paused_at", sa.BigInteger(), nullable=True),
    )
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
        sa.UniqueConstraint("identity", name=op.f("uq_target_identity")),
    )
    _index_where("ix_target_due", ["health", "next_try_at", "sender", "host"], "next_try_at IS NOT NULL")
    _index_where("ix_target_sender", ["sender", "host"], "owner IS NULL")
    _index_where("ix_target_failing", ["failing_since", "id"], "failing_since IS NOT NULL AND disabled_at IS NULL")
    _index_where("ix_target_disabled", ["disabled_at", "id"], "disabled_at IS NOT NULL")
    _index_where("ix_target_unconfirmed", ["id"], "verified_at IS NULL AND disabled_at IS NULL")


def _create_watches() -> None:
    op.create_table(
        "watch",
        sa.Column("id", sa.String(), primary_key=True),
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
        sa.Column("made_by", sa.String(), server_default="", nullable=False),
        sa.Column("stopped_at", sa.BigInteger(), nullable=True),
        sa.Column("following", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["lineage"], ["watch_owner.lineage"], name=op.f("fk_watch_lineage")),
        sa.ForeignKeyConstraint(["webhook_id"], ["target.id"], name=op.f("fk_watch_webhook_id")),
        sa.ForeignKeyConstraint(["email_id"], ["target.id"], name=op.f("fk_watch_email_id")),
    )
    for column in ("lineage", "least_score", "webhook_id", "email_id", "made_by"):
        op.create_index(op.f(f"ix_watch_{column}"), "watch", [column])
    op.create_table(
        "watch_line",
        sa.Column("watch_id", sa.String(), primary_key=True),
        sa.Column("place", sa.Integer(), primary_key=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("package", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("exposed", sa.String(), nullable=False),
        sa.Column("kev", sa.Boolean(), nullable=False),
        sa.Column("ransomware", sa.Boolean(), nullable=False),
        sa.Column("due", sa.Date(), nullable=True),
        sa.Column("likely", sa.Boolean(), nullable=False),
        sa.Column("fix", sa.Boolean(), nullable=False),
        sa.Column("urgency", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["watch_id"], ["watch.id"], name=op.f("fk_watch_line_watch_id"), ondelete="CASCADE"),
    )
    op.create_table(
        "watch_news",
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("watch_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("found", sa.Integer(), nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["watch_id"], ["watch.id"], name=op.f("fk_watch_news_watch_id"), ondelete="CASCADE"),
        sqlite_autoincrement=True,
    )
    for column in ("watch_id", "at"):
        op.create_index(op.f(f"ix_watch_news_{column}"), "watch_news", [column])


def _create_alerts() -> None:
    op.create_table(
        "alert",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("watch_id", sa.String(), nullable=True),
        sa.Column("news", sa.Integer(), nullable=True),
        sa.Column("omitted", sa.Integer(), server_default="0", nullable=False),
        sa.Column("omitted_since", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_alert_target_id")),
        sa.ForeignKeyConstraint(["watch_id"], ["watch.id"], name=op.f("fk_alert_watch_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["news"], ["watch_news.number"], name=op.f("fk_alert_news"), ondelete="CASCADE"),
    )
    op.create_index("ix_alert_target_id", "alert", ["target_id", "id"])
    for column in ("watch_id", "news"):
        op.create_index(op.f(f"ix_alert_{column}"), "alert", [column])


def _index_where(name: str, columns: list[str], condition: str) -> None:
    op.create_index(name, "target", columns, sqlite_where=sa.text(condition), postgresql_where=sa.text(condition))
