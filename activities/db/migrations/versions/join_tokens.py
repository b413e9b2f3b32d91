"""Keep join tokens with the announcements of their machines; a minion id is unique in its account.

Revision: 0020, after 0019
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

LIVE_AND_KNOWN = sa.text("status != 'archived' AND minion_id != ''")


def upgrade() -> None:
    op.create_table(
        "join_tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("region_id", sa.String(), nullable=False),
        sa.Column("secret_sha256", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("minion_id", sa.String(), nullable=True),
        sa.Column("host", sa.String(), nullable=True),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_join_tokens_account_id_accounts"
        ),
        sa.ForeignKeyConstraint(
            ["region_id"], ["regions.id"], name="fk_join_tokens_region_id_regions"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_join_tokens"),
        sa.UniqueConstraint("secret_sha256", name="uq_join_tokens_secret_sha256"),
    )
    op.create_index("ix_join_tokens_account_id", "join_tokens", ["account_id"])
    op.create_index("join_tokens_by_machine", "join_tokens", ["region_id", "minion_id"])
    _index_minion_ids("account_id", "minion_id")


def downgrade() -> None:
    _index_minion_ids("minion_id")
    op.drop_table("join_tokens")


def _index_minion_ids(*columns: str) -> None:
    op.drop_index("nodes_minion_id", "nodes")
    op.create_index(
        "nodes_minion_id",
        "nodes",
        list(columns),
        unique=True,
        sqlite_where=LIVE_AND_KNOWN,
        postgresql_where=LIVE_AND_KNOWN,
    )
