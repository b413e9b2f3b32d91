"""Keep where the notebooks of providers of the kind Colab were announced.

Revision: 0050, after 0049
"""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    op.create_table(
        "colab_endpoints",
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("token_sha256", sa.String(), nullable=True),
        sa.Column("token_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("endpoint_id", sa.String(), nullable=True),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("ssh_user", sa.String(), nullable=False),
        sa.Column("host_key", sa.String(), nullable=False),
        sa.Column("minion_id", sa.String(), nullable=False),
        sa.Column("gpu_type", sa.String(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("cpu_count", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("announced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("held_by", sa.String(), nullable=True),
        sa.Column("held_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["provider_id"],
            ["providers.id"],
            name=op.f("fk_colab_endpoints_provider_id_providers"),
        ),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_colab_endpoints_token_sha256")),
        sa.PrimaryKeyConstraint("provider_id", name=op.f("pk_colab_endpoints")),
    )


def downgrade() -> None:
    op.drop_table("colab_endpoints")
