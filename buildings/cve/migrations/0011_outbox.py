"""How many messages of a watch were left out because too many waited."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("alert", sa.Column("omitted", sa.Integer(), server_default="0", nullable=False))
    op.add_column("alert", sa.Column("omitted_since", sa.BigInteger(), nullable=True))
