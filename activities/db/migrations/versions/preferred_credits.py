"""Count preferred credits from what a provider's machines had cost when they were given.

Those of before are counted from the first machine on, as they were.

Revision: 0042, after 0041
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    spent = sa.Column(
        "preferred_from_microcredits", sa.BigInteger(), server_default="0", nullable=False
    )
    op.add_column("providers", spent)


def downgrade() -> None:
    op.drop_column("providers", "preferred_from_microcredits")
