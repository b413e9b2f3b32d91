"""Say of a node which machine is leased for it; until that is made it has no key.

Revision: 0004, after 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

LIVE = sa.text("status != 'archived'")
LIVE_AND_KNOWN = sa.text("status != 'archived' AND minion_id != ''")


def upgrade() -> None:
    with op.batch_alter_table("nodes") as nodes:
        nodes.add_column(sa.Column("machine", sa.JSON(), nullable=True))
    index_minion_ids(LIVE_AND_KNOWN)


def downgrade() -> None:
    index_minion_ids(LIVE)
    with op.batch_alter_table("nodes") as nodes:
        nodes.drop_column("machine")


def index_minion_ids(which: sa.TextClause) -> None:
    op.drop_index("nodes_minion_id", "nodes")
    op.create_index(
        "nodes_minion_id",
        "nodes",
        ["minion_id"],
        unique=True,
        sqlite_where=which,
        postgresql_where=which,
    )
