"""Keep when the next call of each kind may be made with a provider's key.

Revision: 0052, after 0051
"""

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_table(
        "provider_call_slots",
        sa.Column("key_sha256", sa.String(), nullable=False),
        sa.Column("call", sa.String(), nullable=False),
        sa.Column("free_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key_sha256", "call", name=op.f("pk_provider_call_slots")),
    )


def downgrade() -> None:
    op.drop_table("provider_call_slots")
