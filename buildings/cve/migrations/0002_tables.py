"""Creates the tables of lists, archive and feed state; replaces the migrations from before the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the four tables."""
    op.create_table(
        "latest_list",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ranked", sa.LargeBinary(), nullable=False),
        sa.Column("facts", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_latest_list")),
    )
    op.create_table(
        "archived_brief",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("brief", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_archived_brief")),
    )
    op.create_table(
        "archived_set",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("ranked", sa.LargeBinary(), nullable=False),
        sa.Column("kev", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_archived_set")),
    )
    op.create_table(
        "feed_state",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("etag", sa.String(), nullable=True),
        sa.Column("last_modified", sa.String(), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failure", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_feed_state")),
    )
