"""Keep what was measured of each run, and with how many lost devices a deployment goes on.

Revision: 0048, after 0047
"""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""
_INSTANTS = ("measured_at", "node_started_at", "node_ended_at")


def upgrade() -> None:
    op.add_column("usage_meters", sa.Column("measured_s", sa.BigInteger(), nullable=True))
    for name in _INSTANTS:
        op.add_column("usage_meters", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    column = sa.Column("accepted_lost", sa.Integer(), server_default="0", nullable=False)
    op.add_column("device_deployments", column)


def downgrade() -> None:
    with op.batch_alter_table("device_deployments", schema=None) as batch_op:
        batch_op.drop_column("accepted_lost")
    with op.batch_alter_table("usage_meters", schema=None) as batch_op:
        for name in (*reversed(_INSTANTS), "measured_s"):
            batch_op.drop_column(name)
