"""Keep datastores, and which jobs use them.

Revision: 0029, after 0028
"""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

LIVE = sa.text("status != 'archived'")


def upgrade() -> None:
    op.create_table(
        "datastores",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("recorded_run_id", sa.String(), nullable=False),
        sa.Column("recorded_history_length", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removal_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removal_force", sa.Boolean(), nullable=False),
        sa.Column("removal_requested_by", sa.String(), nullable=True),
        sa.Column("removal_reschedules", sa.Boolean(), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=True),
        sa.Column("root_path", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=True),
        sa.Column("sealed_password", sa.LargeBinary(), nullable=True),
        sa.Column("way", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_datastores_account_id"),
        sa.ForeignKeyConstraint(["region_id"], ["regions.id"], name="fk_datastores_region_id"),
        sa.PrimaryKeyConstraint("id", name="pk_datastores"),
    )
    for column in ("account_id", "region_id"):
        op.create_index(f"ix_datastores_{column}", "datastores", [column], unique=False)
    op.create_index(
        "datastores_name_of_region",
        "datastores",
        ["region_id", "name"],
        unique=True,
        sqlite_where=LIVE,
        postgresql_where=LIVE,
    )
    op.create_table(
        "job_datastores",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("datastore_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["datastore_id"], ["datastores.id"], name="fk_job_datastores_datastore_id"
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_datastores_job_id"),
        sa.PrimaryKeyConstraint("job_id", "datastore_id", name="pk_job_datastores"),
    )
    op.create_index("ix_job_datastores_datastore_id", "job_datastores", ["datastore_id"])


def downgrade() -> None:
    op.drop_table("job_datastores")
    op.drop_table("datastores")
