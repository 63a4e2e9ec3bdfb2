"""How many alerts were left out because too many waited, and the outages of the recorder that are not handled to the end."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the table."""
    op.add_column("alert", sa.Column("omitted", sa.Integer(), server_default="0", nullable=False))
    op.add_column("alert", sa.Column("omitted_since", sa.BigInteger(), nullable=True))
    op.create_table(
        "outage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("began_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("lost_by", sa.BigInteger(), nullable=False),
        sa.Column("moved_to", sa.String(), nullable=True),
        sa.Column("told_to", sa.String(), nullable=False),
        sa.Column("told_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outage")),
    )
