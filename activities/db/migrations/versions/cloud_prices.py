"""Keep what clouds tell of their prices: the last of each that could be.

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "cloud_prices",
        sa.Column("provider_kind", sa.String(), nullable=False),
        sa.Column("counted", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("cloud_region", sa.String(), nullable=False),
        sa.Column("on_demand_nanodollars", sa.BigInteger(), nullable=False),
        sa.Column("spot_nanodollars", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "provider_kind", "counted", "name", "cloud_region", name=op.f("pk_cloud_prices")
        ),
    )


def downgrade() -> None:
    op.drop_table("cloud_prices")
