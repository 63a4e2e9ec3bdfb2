"""A purchase is its payer's: an Idempotency-Key finds one for each; and the address that a call came from."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column, and let one key be that of several payers."""
    with op.batch_alter_table("payments") as payments:
        payments.add_column(sa.Column("client", sa.String(), nullable=True))
        payments.drop_constraint("uq_payments_purchase", type_="unique")
        payments.create_unique_constraint("uq_payments_purchase_payer", ["purchase", "payer"])
