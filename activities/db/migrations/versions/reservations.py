"""Keep reservations, which jobs name them, and which allocation holds each.

Revision: 0033, after 0032
"""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

KEPT = sa.text("removed_at IS NULL")
HELD = sa.text("released_at IS NULL AND reservation_id IS NOT NULL AND state != 'leaving'")


def upgrade() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("hostname", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_reservations_account_id"),
        sa.ForeignKeyConstraint(["region_id"], ["regions.id"], name="fk_reservations_region_id"),
        sa.PrimaryKeyConstraint("id", name="pk_reservations"),
    )
    for column in ("account_id", "region_id"):
        op.create_index(f"ix_reservations_{column}", "reservations", [column], unique=False)
    for column in ("name", "hostname"):
        op.create_index(
            f"reservations_{column}_of_region",
            "reservations",
            ["region_id", column],
            unique=True,
            sqlite_where=KEPT,
            postgresql_where=KEPT,
        )
    op.create_table(
        "job_reservations",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("reservation_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_reservations_job_id"),
        sa.ForeignKeyConstraint(
            ["reservation_id"], ["reservations.id"], name="fk_job_reservations_reservation_id"
        ),
        sa.PrimaryKeyConstraint("job_id", name="pk_job_reservations"),
    )
    op.create_index("ix_job_reservations_reservation_id", "job_reservations", ["reservation_id"])
    op.add_column("allocations", sa.Column("reservation_id", sa.String(), nullable=True))
    op.create_index(
        "allocations_reservation",
        "allocations",
        ["reservation_id"],
        unique=True,
        sqlite_where=HELD,
        postgresql_where=HELD,
    )


def downgrade() -> None:
    op.drop_index("allocations_reservation", "allocations")
    op.drop_column("allocations", "reservation_id")
    op.drop_table("job_reservations")
    op.drop_table("reservations")
