"""Keeps every edition of a day's brief, and NVD's records of all CVEs; forgets addresses of feeds, which may hold passwords."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, move the archived briefs and ranks, and delete what is known of the feeds' copies."""
    op.create_table(
        "brief_edition",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("edition", sa.Integer(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("brief", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", "edition", name=op.f("pk_brief_edition")),
    )
    op.execute("INSERT INTO brief_edition (day, edition, made_at, brief) SELECT day, 1, made_at, brief FROM archived_brief")
    op.drop_table("archived_brief")
    op.create_table(
        "edition_set",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("edition", sa.Integer(), nullable=False),
        sa.Column("base_day", sa.Date(), nullable=True),
        sa.Column("base_edition", sa.Integer(), nullable=True),
        sa.Column("ranked", sa.LargeBinary(), nullable=False),
        sa.Column("kev", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", "edition", name=op.f("pk_edition_set")),
    )
    op.execute("INSERT INTO edition_set (day, edition, ranked, kev) SELECT day, 1, ranked, kev FROM archived_set")
    op.drop_table("archived_set")
    op.create_table(
        "nvd_page",
        sa.Column("page", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("records", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("page", name=op.f("pk_nvd_page")),
    )
    op.create_index(op.f("ix_nvd_page_version"), "nvd_page", ["version"])
    op.create_table(
        "nvd_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("position", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nvd_state")),
    )
    op.execute("UPDATE feed_state SET url = NULL, etag = NULL, last_modified = NULL")
