"""Know which key made a key, which was answered first, which address is not proved, who made a job.

Revision: 0019, after 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None
oldest_code_revision = "0017"

CREATOR = ("creator_user_id", "creator_account_id")


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("parent_key_id", sa.String(), nullable=True))
    op.create_index("ix_api_keys_parent_key_id", "api_keys", ["parent_key_id"], unique=False)
    op.add_column("idempotency_keys", sa.Column("key_id", sa.String(), nullable=True))
    op.add_column("users", sa.Column("claimed_email", sa.String(), nullable=True))
    op.add_column(
        "users", sa.Column("email_verified_at", sa.DateTime(timezone=True), nullable=True)
    )
    for name in CREATOR:
        op.add_column("jobs", sa.Column(name, sa.String(), nullable=True))


def downgrade() -> None:
    for name in CREATOR:
        op.drop_column("jobs", name)
    op.drop_column("users", "email_verified_at")
    op.drop_column("users", "claimed_email")
    op.drop_column("idempotency_keys", "key_id")
    op.drop_index("ix_api_keys_parent_key_id", table_name="api_keys")
    op.drop_column("api_keys", "parent_key_id")
