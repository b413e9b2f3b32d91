"""Know how often a job was tried again, and how long its earlier attempts have run.

Revision: 0024, after 0023
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"

NAMES = ("retries", "ran_s")


def upgrade() -> None:
    for name in NAMES:
        op.add_column("jobs", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    for name in NAMES:
        op.drop_column("jobs", name)
