"""Keep when the machines of a provider were last reconciled with its leases.

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


def downgrade() -> None:
    with op.batch_alter_table("providers") as providers:
        providers.drop_column("reconciled_at")
