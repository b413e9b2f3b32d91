"""Know which attempt of a transfer is the newest, and how many an account has under way.

Revision: 0030, after 0029
"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_table(
        "artifact_transfers",
        sa.Column("artifact_id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("renewed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("artifact_id", name="pk_artifact_transfers"),
    )
    op.create_index("ix_artifact_transfers_account_id", "artifact_transfers", ["account_id"])


def downgrade() -> None:
    op.drop_table("artifact_transfers")
