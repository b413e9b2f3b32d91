"""Name the outbox, the resources of a provider and the notification of a job for what they are.

Revision: 0007, after 0006
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

OFFERS = (("leases", "offer"), ("leases", "offers"), ("nodes", "machine"), ("regions", "options"))
"""Columns of JSON in which offers of machines stand."""
SIGNALS = (("give_back", "release"), ("end_unknown", "terminate_orphan"))


def upgrade() -> None:
    _rename_table("requests", "outbox")
    _rename_column("providers", "parts", "resources")
    _rename_column("allocations", "announced_at", "notified_at")
    for table, column in OFFERS:
        _rename_key(table, column, "place", "zone")
    _rename_key("providers", "resources", "resource", "path")
    for old, new in SIGNALS:
        _rename_signal(old, new)


def downgrade() -> None:
    for old, new in SIGNALS:
        _rename_signal(new, old)
    _rename_key("providers", "resources", "path", "resource")
    for table, column in OFFERS:
        _rename_key(table, column, "zone", "place")
    _rename_column("allocations", "notified_at", "announced_at")
    _rename_column("providers", "resources", "parts")
    _rename_table("outbox", "requests")


def _rename_signal(old: str, new: str) -> None:
    """Of the requests that are not delivered yet."""
    outbox = sa.table("outbox", sa.column("verb"), sa.column("delivered_at"))
    waiting = outbox.update().where(outbox.c.verb == old, outbox.c.delivered_at.is_(None))
    op.execute(waiting.values(verb=new))


def _rename_key(table: str, column: str, old: str, new: str) -> None:
    """Rename a key wherever it stands in the JSON of a column."""
    rows = sa.table(table, sa.column("id"), sa.column(column, sa.JSON()))
    connection = op.get_bind()
    for row_id, stored in connection.execute(sa.select(rows.c.id, rows.c[column])).all():
        renamed = _renamed(stored, old, new)
        if renamed != stored:
            connection.execute(rows.update().where(rows.c.id == row_id).values({column: renamed}))


def _renamed(stored: Any, old: str, new: str) -> Any:
    if isinstance(stored, list):
        return [_renamed(each, old, new) for each in stored]
    if isinstance(stored, dict):
        return {
            new if key == old else key: _renamed(each, old, new) for key, each in stored.items()
        }
    return stored


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
