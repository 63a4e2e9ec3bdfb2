"""When a monitor's first beat arrived: before it the monitor waits, and from it on the uptime counts."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the column. A monitor that has beaten counts from its registration, as before."""
    op.add_column("monitor", sa.Column("first_beat_at", sa.BigInteger(), nullable=True))
    op.execute("UPDATE monitor SET first_beat_at = registered_at WHERE last_beat_at IS NOT NULL")
