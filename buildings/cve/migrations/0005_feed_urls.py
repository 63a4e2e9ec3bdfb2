"""Creates the table of addresses of the full list's feeds."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "feed_url",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feed_url")),
        sa.UniqueConstraint("digest", name=op.f("uq_feed_url_digest")),
    )
    op.create_index(op.f("ix_feed_url_lineage"), "feed_url", ["lineage"])
