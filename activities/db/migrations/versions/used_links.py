"""Remember which links were used, and until when a job pauses before a retry.

Revision: 0026, after 0025
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "used_links",
        sa.Column("link_sha256", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("link_sha256", name="pk_used_links"),
    )
    op.create_index("ix_used_links_expires_at", "used_links", ["expires_at"], unique=False)
    op.add_column("jobs", sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "retry_at")
    op.drop_index("ix_used_links_expires_at", table_name="used_links")
    op.drop_table("used_links")
