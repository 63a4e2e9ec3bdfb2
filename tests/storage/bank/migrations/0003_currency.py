"""Accounts have a currency."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    with op.batch_alter_table("account", recreate="auto") as accounts:
        accounts.add_column(sa.Column("currency", sa.String(length=3), nullable=False, server_default="EUR"))
    with op.batch_alter_table("account") as accounts:
        accounts.alter_column("currency", server_default=None)
