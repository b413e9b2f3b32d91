"""Keep which guests a public region takes, and the pre-emption of guests.

Revision: 0044, after 0043
"""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

INSTANTS = ("preemption_noticed_at", "preemption_due_at", "preempted_at")
_DUE = sa.text("preemption_due_at IS NOT NULL AND preempted_at IS NULL AND released_at IS NULL")


def upgrade() -> None:
    op.add_column("regions", sa.Column("guest_policy", sa.JSON(), nullable=True))
    for name in INSTANTS:
        op.add_column("allocations", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "allocations_to_preempt",
        "allocations",
        ["preemption_due_at"],
        unique=False,
        sqlite_where=_DUE,
        postgresql_where=_DUE,
    )


def downgrade() -> None:
    op.drop_index("allocations_to_preempt", table_name="allocations")
    for name in reversed(INSTANTS):
        op.drop_column("allocations", name)
    op.drop_column("regions", "guest_policy")
