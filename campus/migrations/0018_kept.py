"""What is kept for one browser."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "kept",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("owner", sa.LargeBinary(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
    )
    op.create_index("ix_kept_owner_size", "kept", ["owner", "size"])
    op.create_index("ix_kept_holder_size", "kept", ["holder", "size"])
    op.create_index(op.f("ix_kept_ends_at"), "kept", ["ends_at"])
