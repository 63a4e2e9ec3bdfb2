"""The forms that were answered, for all processes together."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "sent_forms",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sent_forms")),
    )
    op.create_index(op.f("ix_sent_forms_sent_at"), "sent_forms", ["sent_at"])
