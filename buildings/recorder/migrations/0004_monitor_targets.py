"""A monitor has any number of targets: a table of them, instead of one column for a webhook and one for an address."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, carry the targets of all monitors over, and drop the two columns."""
    op.create_table(
        "monitor_target",
        sa.Column("monitor_id", sa.String(), nullable=False),
        sa.Column("target_id", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["monitor_id"], ["monitor.id"], name=op.f("fk_monitor_target_monitor_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target_id"], ["target.id"], name=op.f("fk_monitor_target_target_id")),
        sa.PrimaryKeyConstraint("monitor_id", "target_id", name=op.f("pk_monitor_target")),
    )
    op.create_index(op.f("ix_monitor_target_target_id"), "monitor_target", ["target_id"], unique=False)
    for place, column in enumerate(("webhook", "email")):
        carried = f"SELECT id, {column}, {place} FROM monitor WHERE {column} IS NOT NULL"  # noqa: S608  # our own names
        op.execute(f"INSERT INTO monitor_target (monitor_id, target_id, place) {carried}")
    with op.batch_alter_table("monitor", schema=None) as batch_op:
        for column in ("webhook", "email"):
            batch_op.drop_index(f"ix_monitor_{column}")
            batch_op.drop_constraint(f"fk_monitor_{column}", type_="foreignkey")
            batch_op.drop_column(column)
