"""Say of ledger transactions which project, provider, region and device they are about.

Transactions of before are append-only: the project of theirs is that of their job.

Revision: 0039, after 0038
"""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""
SUBJECTS = ("project_id", "provider_id", "region_id", "device_id", "reverses_id")


def upgrade() -> None:
    for name in SUBJECTS:
        op.add_column("ledger_transactions", sa.Column(name, sa.String(), nullable=True))
    op.drop_index("ix_ledger_transactions_account_id", "ledger_transactions")
    op.create_index(
        "ledger_transactions_by_instant", "ledger_transactions", ["account_id", "at", "id"]
    )
    op.create_index(
        "ledger_transactions_reversed", "ledger_transactions", ["reverses_id"], unique=True
    )


def downgrade() -> None:
    op.drop_index("ledger_transactions_reversed", "ledger_transactions")
    op.drop_index("ledger_transactions_by_instant", "ledger_transactions")
    op.create_index("ix_ledger_transactions_account_id", "ledger_transactions", ["account_id"])
    for name in reversed(SUBJECTS):
        op.drop_column("ledger_transactions", name)
