"""Keys are listed in pages, the oldest first: an index in that order."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the index."""
    op.create_index("ix_keys_issued_at_id", "keys", ["issued_at", "id"])
