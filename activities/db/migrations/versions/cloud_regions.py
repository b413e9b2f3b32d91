"""Say of a region where it is in its cloud; an account has at most one in each.

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

LIVE_IN_A_CLOUD = sa.text("status != 'archived' AND cloud_region IS NOT NULL")


def upgrade() -> None:
    with op.batch_alter_table("regions") as regions:
        regions.add_column(sa.Column("cloud_region", sa.String(), nullable=True))
        regions.add_column(sa.Column("storage_node_class", sa.String(), nullable=True))
    op.create_index(
        "regions_cloud_region_of_account",
        "regions",
        ["account_id", "cloud_region"],
        unique=True,
        sqlite_where=LIVE_IN_A_CLOUD,
        postgresql_where=LIVE_IN_A_CLOUD,
    )


def downgrade() -> None:
    op.drop_index("regions_cloud_region_of_account", "regions")
    with op.batch_alter_table("regions") as regions:
        regions.drop_column("storage_node_class")
        regions.drop_column("cloud_region")
