"""Say of a job how the delivery of its output is, and of a dataset for which job it was made.

Revision: 0035, after 0034
"""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

IS_MADE = sa.text("made_for_job_id IS NOT NULL")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("delivery_status", sa.String(), nullable=True))
    op.add_column("datasets", sa.Column("made_for_job_id", sa.String(), nullable=True))
    op.create_index(
        "datasets_made_for_jobs",
        "datasets",
        ["status", "id"],
        sqlite_where=IS_MADE,
        postgresql_where=IS_MADE,
    )


def downgrade() -> None:
    op.drop_index("datasets_made_for_jobs", table_name="datasets")
    op.drop_column("datasets", "made_for_job_id")
    op.drop_column("jobs", "delivery_status")
