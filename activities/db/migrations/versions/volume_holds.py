"""Know which jobs have which volumes, where their contents are, and how much data jobs need.

Revision: 0032, after 0031
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""

LIVE = "released_at IS NULL"
WRITER = "released_at IS NULL AND access = 'write'"


def upgrade() -> None:
    place = sa.Column("content_place", sa.String(), server_default="", nullable=False)
    op.add_column("volumes", place)
    op.add_column("volumes", sa.Column("written_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("volumes", sa.Column("written_by", sa.String(), nullable=True))
    data_bytes = sa.Column("data_bytes", sa.BigInteger(), server_default="0", nullable=False)
    op.add_column("jobs", data_bytes)
    op.create_table(
        "volume_holds",
        sa.Column("allocation_id", sa.String(), nullable=False),
        sa.Column("volume_id", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("access", sa.String(), nullable=False),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("access IN ('read', 'write')", name="ck_volume_holds_access"),
        sa.ForeignKeyConstraint(
            ["allocation_id"], ["allocations.id"], name="fk_volume_holds_allocation_id"
        ),
        sa.ForeignKeyConstraint(["volume_id"], ["volumes.id"], name="fk_volume_holds_volume_id"),
        sa.PrimaryKeyConstraint("allocation_id", "volume_id", name="pk_volume_holds"),
    )
    for name, condition, unique in (
        ("volume_holds_live", LIVE, False),
        ("volume_holds_writer", WRITER, True),
    ):
        op.create_index(
            name,
            "volume_holds",
            ["volume_id"],
            unique=unique,
            sqlite_where=sa.text(condition),
            postgresql_where=sa.text(condition),
        )


def downgrade() -> None:
    op.drop_table("volume_holds")
    op.drop_column("jobs", "data_bytes")
    for column in ("written_by", "written_at", "content_place"):
        op.drop_column("volumes", column)
