"""Count what an account has by an index, and know which key made a join token.

Revision: 0023, after 0022
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"

INDEXES = {
    ("jobs_open_by_account", "jobs", "account_id"): (
        "status NOT IN ('finished', 'failed', 'canceled', 'archived')"
    ),
    ("api_keys_unrevoked", "api_keys", "account_id", "expires_at"): "revoked_at IS NULL",
    ("join_tokens_unbound", "join_tokens", "account_id"): "minion_id IS NULL",
}


def upgrade() -> None:
    for name in ("log_bytes", "state_bytes"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column(
        "accounts", sa.Column("job_bytes", sa.BigInteger(), server_default="0", nullable=False)
    )
    op.add_column("join_tokens", sa.Column("parent_key_id", sa.String(), nullable=True))
    op.create_index("ix_join_tokens_parent_key_id", "join_tokens", ["parent_key_id"], unique=False)
    for (name, table, *columns), condition in INDEXES.items():
        where = sa.text(condition)
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    for name, table, *_ in INDEXES:
        op.drop_index(name, table_name=table)
    op.drop_index("ix_join_tokens_parent_key_id", table_name="join_tokens")
    op.drop_column("join_tokens", "parent_key_id")
    op.drop_column("accounts", "job_bytes")
    for name in ("state_bytes", "log_bytes"):
        op.drop_column("jobs", name)
