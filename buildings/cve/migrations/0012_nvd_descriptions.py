"""What NVD says that each CVE is; its records are read again for that."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, and begin to read NVD from its start; what was read stays until it is replaced."""
    op.create_table(
        "nvd_descriptions",
        sa.Column("block", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("packed", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("block", name=op.f("pk_nvd_descriptions")),
    )
    op.execute(sa.text("UPDATE nvd_state SET position = NULL"))
    op.execute(sa.text("DELETE FROM feed_state WHERE name = 'NVD'"))
