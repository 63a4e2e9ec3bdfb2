"""When each mailbox was asked, how often, whether its holder refuses, and to whose alerts its holder agreed."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "alerts_mailboxes",
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("unanswered", sa.Integer(), nullable=False),
        sa.Column("refused_at", sa.DateTime(timezone=True), nullable=True),
        sa.UniqueConstraint("token", name=op.f("uq_alerts_mailboxes_token")),
    )
    op.create_table(
        "alerts_senders",
        sa.Column("address", sa.LargeBinary(), primary_key=True),
        sa.Column("sender", sa.String(), primary_key=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("agreed_at", sa.DateTime(timezone=True), nullable=True),
    )
    op.create_index(op.f("ix_alerts_senders_sender_asked_at"), "alerts_senders", ["sender", "asked_at"])
