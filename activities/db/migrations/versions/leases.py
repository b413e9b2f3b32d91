"""Lease machines that cost money, and remember what a provider did not have.

Revision: 0003, after 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_leases()
    create_shortages()


def create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("provider_kind", sa.String(), nullable=False),
        sa.Column("holder_id", sa.String(), nullable=False),
        sa.Column("offers", sa.JSON(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("price_cap_microcredits_per_hour", sa.BigInteger(), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=False),
        sa.Column("offer", sa.JSON(), nullable=True),
        sa.Column("provider_machine_id", sa.String(), nullable=True),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("minion_id", sa.String(), nullable=True),
        sa.Column("microcredits_per_hour", sa.BigInteger(), nullable=True),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("earlier_microcredits", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_leases_account_id"),
        sa.ForeignKeyConstraint(["provider_id"], ["providers.id"], name="fk_leases_provider_id"),
        sa.ForeignKeyConstraint(["region_id"], ["regions.id"], name="fk_leases_region_id"),
        sa.PrimaryKeyConstraint("id", name="pk_leases"),
    )
    for column in ("account_id", "holder_id", "provider_id", "region_id"):
        op.create_index(f"ix_leases_{column}", "leases", [column], unique=False)
    op.create_index("leases_by_status", "leases", ["status"], unique=False)
    op.create_index("leases_name", "leases", ["name"], unique=True)


def create_shortages() -> None:
    op.create_table(
        "shortages",
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["provider_id"], ["providers.id"], name="fk_shortages_provider_id"),
        sa.PrimaryKeyConstraint("provider_id", "scope", name="pk_shortages"),
    )


def downgrade() -> None:
    op.drop_table("shortages")
    op.drop_table("leases")
