"""Keep where a provider's key is, and what was made in the cloud for it.

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("providers") as providers:
        providers.add_column(sa.Column("credentials", sa.String(), nullable=True))
        providers.add_column(sa.Column("cloud", sa.JSON(), nullable=True))
        providers.add_column(sa.Column("parts", sa.JSON(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("providers") as providers:
        providers.drop_column("parts")
        providers.drop_column("cloud")
        providers.drop_column("credentials")
