"""Say in the database which older code runs beside its schema.

Revision: 0015, after 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
oldest_code_revision = revision


def upgrade() -> None:
    op.create_table(
        "schema_compatibility",
        sa.Column("revision", sa.String(), nullable=False),
        sa.Column("oldest_code_revision", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("revision", name="pk_schema_compatibility"),
    )


def downgrade() -> None:
    op.drop_table("schema_compatibility")
