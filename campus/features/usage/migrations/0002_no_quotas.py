"""Calls are counted alike, whichever opens them: what keys pay for is in the tables of credits."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.drop_column("usage_calls", "opened")
