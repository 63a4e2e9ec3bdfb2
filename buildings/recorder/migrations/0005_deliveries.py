"""The alerts that were delivered, for the timelines of monitors."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "delivery",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("delivered_at", sa.BigInteger(), nullable=False),
        sa.Column("monitor_id", sa.String(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_delivery_monitor_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_delivery_target_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_delivery")),
    )
    op.create_index("ix_delivery_target_id", "delivery", ["target_id", "id"])
    op.create_index(op.f("ix_delivery_monitor_id"), "delivery", ["monitor_id"])
