"""Which of a key's calls count for its quota. The audit log, which this step made once, is the feature's."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column. Earlier calls count for no quota."""
    op.add_column("key_usage", sa.Column("opened", sa.BigInteger(), nullable=False, server_default="0"))
