"""Signed payments, kept until they are charged, and the secret that seals them; and the end that a key has by a payment."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the columns and the secret."""
    op.add_column("payments", sa.Column("signed", sa.LargeBinary(), nullable=True))
    op.add_column("payments", sa.Column("submissions", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("key_sales", sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True))
    made = sa.table("secrets", sa.column("name", sa.String()), sa.column("value", sa.LargeBinary()))
    op.bulk_insert(made, [{"name": "payments", "value": secrets.token_bytes(32)}])
