"""Know which regions allow apt packages of others, and add up what an account has stored.

Waiting jobs get their demand keys anew, because a demand now says whether it has such packages.

Revision: 0021, after 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"


def upgrade() -> None:
    allowed = sa.Column(
        "allows_apt_packages", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("regions", allowed)
    op.create_index(
        "jobs_with_output",
        "jobs",
        ["account_id", "status", "output_bytes"],
        unique=False,
        sqlite_where=sa.text("output_bytes IS NOT NULL"),
        postgresql_where=sa.text("output_bytes IS NOT NULL"),
    )
    op.execute("UPDATE jobs SET demand_key = NULL WHERE status = 'waiting_for_resources'")


def downgrade() -> None:
    op.drop_index("jobs_with_output", table_name="jobs")
    op.drop_column("regions", "allows_apt_packages")
