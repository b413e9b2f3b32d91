"""Say of a storage node whose place it takes.

Revision: 0034, after 0033
"""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.add_column("nodes", sa.Column("fills_from", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("nodes", "fills_from")
