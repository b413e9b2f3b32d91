"""Know what has passed its retention: outbox rows, idempotency keys and uploads.

Revision: 0014, after 0013
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("named_at", "removed_at"):
        op.add_column("uploads", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "outbox_delivered",
        "outbox",
        ["delivered_at"],
        unique=False,
        sqlite_where=sa.text("delivered_at IS NOT NULL"),
        postgresql_where=sa.text("delivered_at IS NOT NULL"),
    )
    op.create_index("idempotency_keys_by_age", "idempotency_keys", ["created_at"], unique=False)


def downgrade() -> None:
    op.drop_index("idempotency_keys_by_age", table_name="idempotency_keys")
    op.drop_index("outbox_delivered", table_name="outbox")
    for name in ("removed_at", "named_at"):
        op.drop_column("uploads", name)
