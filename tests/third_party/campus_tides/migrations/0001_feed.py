"""The table of waters."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "feed",
        sa.Column("port", sa.String(), primary_key=True),
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("minute", sa.Integer(), primary_key=True),
        sa.Column("metres", sa.Float(), nullable=False),
    )
