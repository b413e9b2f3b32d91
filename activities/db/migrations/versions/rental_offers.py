"""Keep what marketplaces offer, and have the demands of waiting jobs say whether they have secrets.

Revision: 0049, after 0048
"""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_table(
        "rental_offers",
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("offer_id", sa.String(), nullable=False),
        sa.Column("offer", sa.JSON(), nullable=False),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["provider_id"], ["providers.id"], name=op.f("fk_rental_offers_provider_id_providers")
        ),
        sa.PrimaryKeyConstraint("provider_id", "offer_id", name=op.f("pk_rental_offers")),
    )
    # Jobs with and without secrets have had one key.
    op.execute("UPDATE jobs SET demand_key = NULL WHERE status = 'waiting_for_resources'")


def downgrade() -> None:
    op.drop_table("rental_offers")
