"""Let two providers of an account have regions in one cloud region; say how machines are reached.

Revision: 0009, after 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

OPEN = sa.text("status != 'archived' AND cloud_region IS NOT NULL")


def upgrade() -> None:
    op.drop_index("regions_cloud_region_of_account", "regions")
    index("regions_cloud_region_of_provider", "provider_id")
    with op.batch_alter_table("regions") as regions:
        regions.add_column(
            sa.Column(
                "uses_internal_addresses", sa.Boolean(), nullable=False, server_default=sa.false()
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("regions") as regions:
        regions.drop_column("uses_internal_addresses")
    op.drop_index("regions_cloud_region_of_provider", "regions")
    index("regions_cloud_region_of_account", "account_id")


def index(name: str, owner: str) -> None:
    op.create_index(
        name,
        "regions",
        [owner, "cloud_region"],
        unique=True,
        sqlite_where=OPEN,
        postgresql_where=OPEN,
    )
