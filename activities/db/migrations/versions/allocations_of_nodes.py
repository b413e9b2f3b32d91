"""Find the allocations of a node also after their release, which costs by project look for.

Revision: 0051, after 0050
"""

from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_index("ix_allocations_node_id", "allocations", ["node_id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_allocations_node_id", table_name="allocations")
