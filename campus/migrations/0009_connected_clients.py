"""Tables of the clients that keys' holders let in by OAuth, of their tokens, and of the secret that their ids are stamped with."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make the tables and the secret."""
    op.create_table(
        "connected_clients",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("building", sa.String(), nullable=False),
        sa.Column("client_id", sa.String(), nullable=False),
        sa.Column("client_name", sa.String(), nullable=False),
        sa.Column("returns_to", sa.String(), nullable=False),
        sa.Column("connected_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ends_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["key_id"], ["keys.id"], name=op.f("fk_connected_clients_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_connected_clients")),
    )
    for name in ("ends_at", "key_id"):
        op.create_index(op.f(f"ix_connected_clients_{name}"), "connected_clients", [name])
    op.create_table(
        "client_tokens",
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("connected_client", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("code_challenge", sa.String(), nullable=True),
        sa.Column("redirect_uri", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["connected_client"], ["connected_clients.id"], name=op.f("fk_client_tokens_connected_client")),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_client_tokens")),
    )
    for name in ("connected_client", "expires_at"):
        op.create_index(op.f(f"ix_client_tokens_{name}"), "client_tokens", [name])
    made = op.create_table(
        "secrets",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_secrets")),
    )
    op.bulk_insert(made, [{"name": "connect", "value": secrets.token_bytes(32)}])
