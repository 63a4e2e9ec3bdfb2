"""Credits: what a lineage has left, and by how much an event of a key, or a sale, changed that."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    for table in ("key_events", "key_sales"):
        op.add_column(table, sa.Column("credits", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "credit_accounts",
        sa.Column("lineage", sa.String(), primary_key=True),
        sa.Column("balance", sa.BigInteger(), nullable=False),
        sa.Column("period", sa.String(), nullable=False),
        sa.Column("calls", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("balance >= 0", name=op.f("ck_credit_accounts_balance")),
    )
