"""Keep the wallets and the idle workload of accounts, and what nodes say of it.

Revision: 0037, after 0036
"""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("accounts", sa.Column("wallets", sa.JSON(), nullable=True))
    op.add_column("accounts", sa.Column("idle_workload", sa.JSON(), nullable=True))
    revision_of = sa.Column("idle_revision", sa.Integer(), nullable=False, server_default="0")
    op.add_column("accounts", revision_of)
    op.add_column("nodes", sa.Column("idle_workload", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("nodes", "idle_workload")
    for name in ("idle_revision", "idle_workload", "wallets"):
        op.drop_column("accounts", name)
