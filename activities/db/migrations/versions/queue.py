"""Queue waiting jobs by demand, and store the refusals of a demand once.

Revision: 0011, after 0010

The next planning round computes the demand keys of jobs that wait already. The new index begins
with the status, as the one that it replaces.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INDEXED = ("status", "project_id", "priority", "demand_key", "waiting_since", "id", "attempt")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("demand_key", sa.String(), nullable=True))
    op.add_column("jobs", sa.Column("waiting_since", sa.DateTime(timezone=True), nullable=True))
    op.drop_index("jobs_by_status", table_name="jobs")
    op.create_index("jobs_by_demand", "jobs", list(INDEXED), unique=False)
    op.create_table(
        "demand_refusals",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("demand_key", sa.String(), nullable=False),
        sa.Column("refusals", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_demand_refusals_project_id"
        ),
        sa.PrimaryKeyConstraint("project_id", "demand_key", name="pk_demand_refusals"),
    )
    _forget_refusals_of_waiting_jobs()


def downgrade() -> None:
    op.drop_table("demand_refusals")
    op.drop_index("jobs_by_demand", table_name="jobs")
    op.create_index("jobs_by_status", "jobs", ["status", "priority", "created_at"], unique=False)
    op.drop_column("jobs", "waiting_since")
    op.drop_column("jobs", "demand_key")


def _forget_refusals_of_waiting_jobs() -> None:
    """What a waiting job shares with others is written anew by the next planning round."""
    jobs = sa.table(
        "jobs",
        sa.column("id"),
        sa.column("status"),
        sa.column("attempt"),
        sa.column("placement_refusals", sa.JSON()),
    )
    allocations = sa.table("allocations", sa.column("job_id"), sa.column("attempt"))
    placed = sa.exists().where(
        allocations.c.job_id == jobs.c.id, allocations.c.attempt == jobs.c.attempt
    )
    waiting = jobs.update().where(jobs.c.status == "waiting_for_resources", ~placed)
    op.execute(waiting.values(placement_refusals=[]))
