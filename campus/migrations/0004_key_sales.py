"""Keys that are paid for: what each payment buys, until it settles and after."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "key_sales",
        sa.Column("payment", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("lineage", sa.String(), nullable=False),
        sa.Column("term", sa.String(), nullable=False),
        sa.Column("by", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("payment", name=op.f("pk_key_sales")),
    )
    op.create_index(op.f("ix_key_sales_key_id"), "key_sales", ["key_id"])
