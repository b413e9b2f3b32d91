"""Know whether jobs of other accounts may install apt packages on a region's machines.

Waiting jobs get their demand keys anew, because a demand now says whether it has such packages.

Revision: 0021, after 0020
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"


def upgrade() -> None:
    allowed = sa.Column(
        "allows_apt_packages", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("regions", allowed)
    op.execute("UPDATE jobs SET demand_key = NULL WHERE status = 'waiting_for_resources'")


def downgrade() -> None:
    op.drop_column("regions", "allows_apt_packages")
