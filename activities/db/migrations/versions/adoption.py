"""Keep what a lifecycle needs to go on from its row: who asked for an end or a removal, and how.

Revision: 0016, after 0015
"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

UNSETTLED = sa.text("unsettled IS NOT NULL")
REMOVABLE = ("providers", "regions", "nodes")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("restarts", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("ending", sa.JSON(), nullable=True))
    op.add_column("jobs", sa.Column("unsettled", sa.JSON(), nullable=True))
    op.create_index(
        "jobs_unsettled",
        "jobs",
        ["updated_at"],
        sqlite_where=UNSETTLED,
        postgresql_where=UNSETTLED,
    )
    op.add_column("leases", sa.Column("ending", sa.JSON(), nullable=True))
    for name in REMOVABLE:
        at = sa.Column("removal_requested_at", sa.DateTime(timezone=True), nullable=True)
        op.add_column(name, at)
        force = sa.Column(
            "removal_force", sa.Boolean(), nullable=False, server_default=sa.text("false")
        )
        op.add_column(name, force)
        op.add_column(name, sa.Column("removal_requested_by", sa.String(), nullable=True))


def downgrade() -> None:
    for name in REMOVABLE:
        op.drop_column(name, "removal_requested_by")
        op.drop_column(name, "removal_force")
        op.drop_column(name, "removal_requested_at")
    op.drop_column("leases", "ending")
    op.drop_index("jobs_unsettled", "jobs")
    op.drop_column("jobs", "unsettled")
    op.drop_column("jobs", "ending")
    op.drop_column("jobs", "restarts")
