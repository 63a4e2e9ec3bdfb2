"""The clients that keys' holders let in by OAuth, their tokens, and the secret that their ids are stamped with."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables and the secret."""
    op.create_table(
        "connect_clients",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("client_id", sa.String(), nullable=False),
        sa.Column("client_name", sa.String(), nullable=False),
        sa.Column("returns_to", sa.String(), nullable=False),
        sa.Column("connected_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
    )
    for name in ("ends_at", "key_id"):
        op.create_index(op.f(f"ix_connect_clients_{name}"), "connect_clients", [name])
    op.create_table(
        "connect_tokens",
        sa.Column("digest", sa.LargeBinary(), primary_key=True),
        sa.Column("client", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("code_challenge", sa.String(), nullable=True),
        sa.Column("redirect_uri", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["client"], ["connect_clients.id"], name=op.f("fk_connect_tokens_client")),
    )
    for name in ("client", "expires_at"):
        op.create_index(op.f(f"ix_connect_tokens_{name}"), "connect_tokens", [name])
    made = sa.text("INSERT INTO secrets (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING")
    op.execute(made.bindparams(sa.bindparam("name", "connect"), sa.bindparam("value", secrets.token_bytes(32), sa.LargeBinary())))
