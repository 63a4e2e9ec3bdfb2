"""Nothing any more: what callers have spent of their limits is a table of the feature limits."""

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Nothing."""
