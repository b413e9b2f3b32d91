"""Keep the labels of jobs apart, and the rate limits that API keys have of their own.

Revision: 0043, after 0042
"""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_labels_job_id"),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_labels"),
    )
    by = ["account_id", "key", "value", "job_id"]
    op.create_index("job_labels_by_account", "job_labels", by)
    op.add_column("api_keys", sa.Column("requests_per_minute", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("api_keys", "requests_per_minute")
    op.drop_index("job_labels_by_account", "job_labels")
    op.drop_table("job_labels")
