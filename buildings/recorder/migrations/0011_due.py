"""When a sweep looks at each monitor: the indexed column, which most beats leave as it is."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column and index it instead of the deadline. On PostgreSQL pages keep room for the next version of their rows."""
    op.add_column("monitor", sa.Column("due_at", sa.BigInteger(), server_default="0", nullable=False))
    op.execute("UPDATE monitor SET due_at = deadline_at")
    op.drop_index("ix_monitor_due", "monitor")
    where = sa.text("mode = 'up'")
    op.create_index("ix_monitor_due", "monitor", ["due_at"], sqlite_where=where, postgresql_where=where)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE monitor SET (fillfactor = 75)")
