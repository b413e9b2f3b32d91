"""Keep boot-drive requests.

Revision: 0036, after 0035
"""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

OPEN = sa.text("status IN ('requested', 'approved', 'shipped')")
WITH_ADDRESS = sa.text("ship_to IS NOT NULL")
TABLE = "boot_drive_requests"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("drive_count", sa.Integer(), nullable=False),
        sa.Column("ship_to", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("carrier", sa.String(), nullable=True),
        sa.Column("tracking", sa.String(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=f"fk_{TABLE}_account_id"),
        sa.ForeignKeyConstraint(["region_id"], ["regions.id"], name=f"fk_{TABLE}_region_id"),
        sa.PrimaryKeyConstraint("id", name=f"pk_{TABLE}"),
    )
    for column in ("account_id", "region_id"):
        op.create_index(f"ix_{TABLE}_{column}", TABLE, [column], unique=False)
    op.create_index(
        f"{TABLE}_open_by_account",
        TABLE,
        ["account_id"],
        unique=False,
        sqlite_where=OPEN,
        postgresql_where=OPEN,
    )
    op.create_index(
        f"{TABLE}_with_address",
        TABLE,
        ["status", "updated_at"],
        unique=False,
        sqlite_where=WITH_ADDRESS,
        postgresql_where=WITH_ADDRESS,
    )


def downgrade() -> None:
    op.drop_table(TABLE)
