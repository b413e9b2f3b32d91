"""Keep when guests were asked to end without credits, and find running meters by their payers.

Revision: 0047, after 0046
"""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

_RUNNING = sa.text("running")
_FEDERATED = sa.text("federated_payer_id IS NOT NULL")


def upgrade() -> None:
    column = sa.Column("credits_used_up_at", sa.DateTime(timezone=True), nullable=True)
    op.add_column("usage_meters", column)
    op.create_index(
        "usage_meters_federated",
        "usage_meters",
        ["running", "federated_payer_id"],
        unique=False,
        sqlite_where=_FEDERATED,
        postgresql_where=_FEDERATED,
    )
    op.create_index("usage_meters_of_payer", "usage_meters", ["running", "payer_id"], unique=False)
    op.drop_index("usage_meters_running", table_name="usage_meters")  # No plan could use it.


def downgrade() -> None:
    op.create_index(
        "usage_meters_running",
        "usage_meters",
        ["payer_id"],
        unique=False,
        sqlite_where=_RUNNING,
        postgresql_where=_RUNNING,
    )
    op.drop_index("usage_meters_of_payer", table_name="usage_meters")
    op.drop_index("usage_meters_federated", table_name="usage_meters")
    op.drop_column("usage_meters", "credits_used_up_at")
