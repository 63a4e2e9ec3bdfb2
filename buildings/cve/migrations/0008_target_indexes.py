"""Indexes of the alert targets that an operator looks for: those that fail, are disabled or are not confirmed."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

INDEXES = {
    "ix_target_failing": (["failing_since", "id"], "failing_since IS NOT NULL AND disabled_at IS NULL"),
    "ix_target_disabled": (["disabled_at", "id"], "disabled_at IS NOT NULL"),
    "ix_target_unconfirmed": (["id"], "verified_at IS NULL AND disabled_at IS NULL"),
}


def upgrade() -> None:
    """Make the indexes; databases made by an early form of step 0007 have them already."""
    for name, (columns, condition) in INDEXES.items():
        where = sa.text(condition)
        op.create_index(name, "target", columns, sqlite_where=where, postgresql_where=where, if_not_exists=True)
