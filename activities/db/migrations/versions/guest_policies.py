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

INSTANTS = ("preemption_noticed_at", "preempted_at")


def upgrade() -> None:
    op.add_column("regions", sa.Column("guest_policy", sa.JSON(), nullable=True))
    for name in INSTANTS:
        op.add_column("allocations", sa.Column(name, sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    for name in reversed(INSTANTS):
        op.drop_column("allocations", name)
    op.drop_column("regions", "guest_policy")
