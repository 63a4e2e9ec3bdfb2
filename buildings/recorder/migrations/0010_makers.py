"""Stores which key or connected client registered a monitor, changed it or took it over last."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column. An older monitor counts as made by the first key of its lineage, whose id is the lineage's."""
    op.add_column("monitor", sa.Column("made_by", sa.String(), nullable=True))
    op.execute("UPDATE monitor SET made_by = owner")
