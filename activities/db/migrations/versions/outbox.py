"""Name the outbox, the resources of a provider and the notification of a job for what they are.

Revision: 0007, after 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _rename_table("requests", "outbox")
    _rename_column("providers", "parts", "resources")
    _rename_column("allocations", "announced_at", "notified_at")


def downgrade() -> None:
    _rename_column("allocations", "notified_at", "announced_at")
    _rename_column("providers", "resources", "parts")
    _rename_table("outbox", "requests")


def _rename_column(table: str, old: str, new: str) -> None:
    """Both databases rename it in their partial indexes as well."""
    op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")


def _rename_table(old: str, new: str) -> None:
    """The table of promised starts and signals, with its two indexes."""
    op.drop_index(f"{old}_undelivered", table_name=old)
    op.drop_index(f"ix_{old}_resource_id", table_name=old)
    op.rename_table(old, new)
    op.create_index(f"ix_{new}_resource_id", new, ["resource_id"], unique=False)
    op.create_index(
        f"{new}_undelivered",
        new,
        ["created_at"],
        unique=False,
        sqlite_where=sa.text("delivered_at IS NULL"),
        postgresql_where=sa.text("delivered_at IS NULL"),
    )
