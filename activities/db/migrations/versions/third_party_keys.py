"""Keep the third-party keys of projects, one of each type.

Revision: 0031, after 0030
"""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_table(
        "third_party_keys",
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("hint", sa.String(), nullable=True),
        sa.Column("set_by", sa.String(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name="fk_third_party_keys_project_id"
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_third_party_keys_account_id"
        ),
        sa.PrimaryKeyConstraint("project_id", "type", name="pk_third_party_keys"),
    )
    op.create_index("ix_third_party_keys_account_id", "third_party_keys", ["account_id"])


def downgrade() -> None:
    op.drop_table("third_party_keys")
