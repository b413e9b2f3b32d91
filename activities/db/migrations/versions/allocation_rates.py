"""Keep the usage rates of each allocation, by which its run is billed however late that begins.

Revision: 0025, after 0024
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"


def upgrade() -> None:
    op.add_column("allocations", sa.Column("rates", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("allocations", "rates")
