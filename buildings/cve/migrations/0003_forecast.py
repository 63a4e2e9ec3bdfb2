"""Creates the tables of forecasts: their archive, orders and grades, ransomware flips, changes of EPSS, and the public record."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the five tables."""
    op.create_table(
        "archived_forecast",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("forecast", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_archived_forecast")),
    )
    op.create_table(
        "ranking_order",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("ranking", sa.String(), nullable=False),
        sa.Column("leading", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=False),
        sa.Column("grade", sa.LargeBinary(), nullable=True),
        sa.Column("is_final", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("day", "ranking", name=op.f("pk_ranking_order")),
    )
    op.create_table(
        "ransomware_flip",
        sa.Column("cve_id", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.PrimaryKeyConstraint("cve_id", "day", name=op.f("pk_ransomware_flip")),
    )
    op.create_table(
        "epss_change",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("previous_day", sa.Date(), nullable=False),
        sa.Column("previous_model", sa.String(), nullable=False),
        sa.Column("changes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_epss_change")),
    )
    op.create_table(
        "graded_record",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_graded_record")),
    )
