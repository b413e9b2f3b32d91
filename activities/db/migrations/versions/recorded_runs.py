"""Keep which workflow run recorded the last step of a row, and how long its history was then.

Revision: 0017, after 0016
"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

TABLES = ("providers", "regions", "nodes", "leases", "jobs")


def upgrade() -> None:
    for name in TABLES:
        run = sa.Column("recorded_run_id", sa.String(), nullable=False, server_default="")
        length = sa.Column(
            "recorded_history_length", sa.Integer(), nullable=False, server_default="0"
        )
        op.add_column(name, run)
        op.add_column(name, length)


def downgrade() -> None:
    for name in TABLES:
        op.drop_column(name, "recorded_history_length")
        op.drop_column(name, "recorded_run_id")
