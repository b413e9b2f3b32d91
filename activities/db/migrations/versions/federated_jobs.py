"""Keep federated jobs, and the fees of their runs.

Revision: 0045, after 0044
"""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""
_OPEN = "status NOT IN ('settled', 'refused')"


def upgrade() -> None:
    create_federated_jobs()
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("federated_id", sa.String(), nullable=True))
        batch_op.create_index("ix_jobs_federated_id", ["federated_id"])
    with op.batch_alter_table("usage_meters", schema=None) as batch_op:
        batch_op.add_column(sa.Column("federated_payer_id", sa.String(), nullable=True))
        for name in ("federated_microcredits_per_hour", "federated_microcredits"):
            column = sa.Column(name, sa.BigInteger(), server_default="0", nullable=False)
            batch_op.add_column(column)
        batch_op.create_foreign_key(
            "fk_usage_meters_federated_payer_id", "accounts", ["federated_payer_id"], ["id"]
        )


def create_federated_jobs() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "federated_jobs",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("recorded_run_id", sa.String(), nullable=False),
        sa.Column("recorded_history_length", sa.Integer(), nullable=False),
        sa.Column("created_at", instant, nullable=False),
        sa.Column("updated_at", instant, nullable=False),
        sa.Column("consumer_account_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("creator_user_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("sealed_variables", sa.LargeBinary(), nullable=True),
        sa.Column("egress", sa.JSON(), nullable=True),
        sa.Column("logs", sa.String(), nullable=True),
        sa.Column("sealed_model", sa.JSON(), nullable=True),
        sa.Column("sealed_key", sa.LargeBinary(), nullable=True),
        sa.Column("end_reason", sa.Text(), nullable=True),
        sa.Column("end_requested_at", instant, nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_federated_jobs_account_id"
        ),
        sa.ForeignKeyConstraint(
            ["consumer_account_id"], ["accounts.id"], name="fk_federated_jobs_consumer_account_id"
        ),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_federated_jobs_project_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_federated_jobs"),
        sa.UniqueConstraint("job_id", name="uq_federated_jobs_job_id"),
    )
    _create_indexes()


def _create_indexes() -> None:
    table, is_open = "federated_jobs", sa.text(_OPEN)
    op.create_index("federated_jobs_by_account", table, ["account_id", "id"])
    op.create_index("federated_jobs_by_consumer", table, ["consumer_account_id", "id"])
    for name, column in (
        ("federated_jobs_open_by_account", "account_id"),
        ("federated_jobs_open_by_project", "project_id"),
    ):
        op.create_index(name, table, [column], sqlite_where=is_open, postgresql_where=is_open)
    op.create_index("ix_federated_jobs_account_id", table, ["account_id"])


def downgrade() -> None:
    with op.batch_alter_table("usage_meters", schema=None) as batch_op:
        batch_op.drop_constraint("fk_usage_meters_federated_payer_id", type_="foreignkey")
        batch_op.drop_column("federated_microcredits")
        batch_op.drop_column("federated_microcredits_per_hour")
        batch_op.drop_column("federated_payer_id")
    with op.batch_alter_table("jobs", schema=None) as batch_op:
        batch_op.drop_index("ix_jobs_federated_id")
        batch_op.drop_column("federated_id")
    op.drop_table("federated_jobs")
