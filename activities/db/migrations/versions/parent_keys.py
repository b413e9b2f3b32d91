"""Know which API key made another, which one was answered first, and whose address is not proved.

Revision: 0019, after 0017
"""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None
oldest_code_revision = "0017"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("parent_key_id", sa.String(), nullable=True))
    op.create_index("ix_api_keys_parent_key_id", "api_keys", ["parent_key_id"], unique=False)
    op.add_column("idempotency_keys", sa.Column("key_id", sa.String(), nullable=True))
    op.add_column("users", sa.Column("claimed_email", sa.String(), nullable=True))
    op.add_column(
        "users", sa.Column("email_verified_at", sa.DateTime(timezone=True), nullable=True)
    )


def downgrade() -> None:
    op.drop_column("users", "email_verified_at")
    op.drop_column("users", "claimed_email")
    op.drop_column("idempotency_keys", "key_id")
    op.drop_index("ix_api_keys_parent_key_id", table_name="api_keys")
    op.drop_column("api_keys", "parent_key_id")
