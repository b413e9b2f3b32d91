"""Keep in rows what is wanted of a node, and when an outbox row is tried next.

Revision: 0012, after 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

INSTANTS = ("next_attempt_at", "refused_since", "parked_at")
_UNDELIVERED = sa.text("delivered_at IS NULL")
_WAITING = sa.text("delivered_at IS NULL AND parked_at IS NULL")


def upgrade() -> None:
    op.add_column("nodes", sa.Column("wanted_status", sa.String(), nullable=True))
    for name in ("wanted_revision", "seen_revision"):
        op.add_column(
            "nodes", sa.Column(name, sa.Integer(), nullable=False, server_default=sa.text("0"))
        )
    op.add_column(
        "outbox", sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0"))
    )
    for name in INSTANTS:
        op.add_column("outbox", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    _index("next_attempt_at", _WAITING)
    _wake_instead_of_signals()


def _wake_instead_of_signals() -> None:
    """Turn undelivered signals into what is wanted in rows, which the nodes read when they wake."""
    nodes = sa.table("nodes", *map(sa.column, ("id", "wanted_status", "wanted_revision")))
    outbox = sa.table("outbox", *map(sa.column, ("resource_id", "verb", "delivered_at")))
    is_waiting = outbox.c.delivered_at.is_(None)
    op.execute(outbox.delete().where(outbox.c.verb == "announced", is_waiting))
    for verb, status in (("activate", "active"), ("maintain", "maintenance")):
        is_asked = (outbox.c.verb == verb, is_waiting)
        asked = nodes.update().where(
            nodes.c.id.in_(sa.select(outbox.c.resource_id).where(*is_asked))
        )
        op.execute(asked.values(wanted_status=status, wanted_revision=1))
        op.execute(outbox.update().where(*is_asked).values(verb="wake"))


def downgrade() -> None:
    op.execute("DELETE FROM outbox WHERE verb = 'wake' AND delivered_at IS NULL")
    _index("created_at", _UNDELIVERED)
    for name in (*INSTANTS, "attempts"):
        op.drop_column("outbox", name)
    for name in ("seen_revision", "wanted_revision", "wanted_status"):
        op.drop_column("nodes", name)


def _index(column: str, where: sa.TextClause) -> None:
    """Replace the index of the rows that wait."""
    op.drop_index("outbox_undelivered", table_name="outbox")
    op.create_index(
        "outbox_undelivered",
        "outbox",
        [column],
        unique=False,
        sqlite_where=where,
        postgresql_where=where,
    )
