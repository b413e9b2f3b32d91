"""Keep when a provider was last reconciled, and which regions have a worker of their own.

Revision: 0013, after 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("providers") as providers:
        providers.add_column(sa.Column("reconciled_at", sa.DateTime(timezone=True), nullable=True))
    shared = sa.Column("own_worker", sa.Boolean(), nullable=False, server_default=sa.false())
    with op.batch_alter_table("regions") as regions:
        regions.add_column(shared)


def downgrade() -> None:
    with op.batch_alter_table("regions") as regions:
        regions.drop_column("own_worker")
    with op.batch_alter_table("providers") as providers:
        providers.drop_column("reconciled_at")
