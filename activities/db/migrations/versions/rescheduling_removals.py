"""Know whether the jobs of a node that is removed begin again on other nodes.

Revision: 0027, after 0026
"""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"

REMOVABLE = ("providers", "regions", "nodes")


def upgrade() -> None:
    for name in REMOVABLE:
        reschedules = sa.Column(
            "removal_reschedules", sa.Boolean(), nullable=False, server_default=sa.text("false")
        )
        op.add_column(name, reschedules)


def downgrade() -> None:
    for name in REMOVABLE:
        op.drop_column(name, "removal_reschedules")
