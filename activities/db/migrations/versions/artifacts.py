"""Store datasets, models, checkpoints and volumes, and know which jobs use them.

Revision: 0028, after 0027
"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"

NOUNS = ("datasets", "models", "checkpoints", "volumes")


def upgrade() -> None:
    for table in NOUNS:
        _create(table)
    op.create_table(
        "artifact_parts",
        sa.Column("artifact_id", sa.String(), nullable=False),
        sa.Column("index", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("artifact_id", "index", name="pk_artifact_parts"),
    )
    op.create_table(
        "artifact_uses",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("artifact_id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_artifact_uses_job_id"),
        sa.PrimaryKeyConstraint("job_id", "artifact_id", "role", name="pk_artifact_uses"),
    )
    op.create_index("ix_artifact_uses_artifact_id", "artifact_uses", ["artifact_id"])


def _create(table: str) -> None:
    op.create_table(
        table,
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("status_reason", sa.Text(), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("recorded_run_id", sa.String(), nullable=False),
        sa.Column("recorded_history_length", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removal_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removal_force", sa.Boolean(), nullable=False),
        sa.Column("removal_requested_by", sa.String(), nullable=True),
        sa.Column("removal_reschedules", sa.Boolean(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=False),
        sa.Column("creator_user_id", sa.String(), nullable=False),
        sa.Column("creator_account_id", sa.String(), nullable=False),
        sa.Column("source", sa.JSON(), nullable=False),
        sa.Column("content_sha256", sa.String(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("unpacked_bytes", sa.BigInteger(), nullable=True),
        sa.Column("file_count", sa.Integer(), nullable=True),
        sa.Column("bytes_transferred", sa.BigInteger(), nullable=False),
        sa.Column("total_bytes", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=f"fk_{table}_account_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=f"fk_{table}_project_id"),
        sa.PrimaryKeyConstraint("id", name=f"pk_{table}"),
    )
    is_there = sa.text("status != 'archived'")
    op.create_index(
        f"{table}_name_of_project",
        table,
        ["project_id", "name"],
        unique=True,
        sqlite_where=is_there,
        postgresql_where=is_there,
    )
    counted = ["account_id", "status", "size_bytes", "bytes_transferred"]
    op.create_index(f"{table}_by_account", table, counted)
    op.create_index(f"ix_{table}_account_id", table, ["account_id"])
    op.create_index(f"ix_{table}_project_id", table, ["project_id"])


def downgrade() -> None:
    for table in ("artifact_uses", "artifact_parts", *NOUNS):
        op.drop_table(table)
