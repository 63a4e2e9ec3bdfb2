"""When a silent monitor's targets were told that it will be removed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; none of the monitors was announced before."""
    with op.batch_alter_table("monitor", schema=None) as batch_op:
        batch_op.add_column(sa.Column("expiry_told_at", sa.BigInteger(), nullable=True))
