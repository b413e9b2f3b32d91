"""Keep when the machines of a provider were last reconciled with its leases.

Revision: planes, after 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "planes"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("providers") as providers:
        providers.add_column(sa.Column("reconciled_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("providers") as providers:
        providers.drop_column("reconciled_at")
