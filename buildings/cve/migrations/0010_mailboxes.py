"""What was asked of mailboxes is stored in campus's own database, for all buildings together."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the columns that counted questions."""
    op.drop_column("target", "asked_at")
    op.drop_column("watch_owner", "asked_on")
    op.drop_column("watch_owner", "asked")
