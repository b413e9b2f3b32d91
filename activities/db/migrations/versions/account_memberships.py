"""Keep invitations, members of accounts, and what projects allow to federated jobs.

Revision: 0040, after 0039
"""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""


def upgrade() -> None:
    instant = sa.DateTime(timezone=True)
    op.add_column("accounts", sa.Column("removed_at", instant, nullable=True))
    op.add_column("projects", sa.Column("federated_egress", sa.JSON(), nullable=True))
    logs = sa.Column("federated_logs", sa.String(), server_default="none", nullable=False)
    op.add_column("projects", logs)
    op.add_column("projects", sa.Column("removed_at", instant, nullable=True))
    create_account_members()
    create_invitations()


def create_account_members() -> None:
    op.create_table(
        "account_members",
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name="fk_account_members_account_id"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_account_members_user_id"),
        sa.PrimaryKeyConstraint("account_id", "user_id", name="pk_account_members"),
    )
    op.create_index("ix_account_members_user_id", "account_members", ["user_id"])


def create_invitations() -> None:
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("project_id", sa.String(), nullable=True),
        sa.Column("permissions", sa.JSON(), nullable=True),
        sa.Column("role", sa.String(), nullable=True),
        sa.Column("email", sa.String(), nullable=False),
        sa.Column("secret_sha256", sa.String(), nullable=False),
        sa.Column("inviter_user_id", sa.String(), nullable=False),
        sa.Column("created_at", instant, nullable=False),
        sa.Column("expires_at", instant, nullable=False),
        sa.Column("accepted_at", instant, nullable=True),
        sa.Column("accepted_by", sa.String(), nullable=True),
        sa.Column("withdrawn_at", instant, nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name="fk_invitations_account_id"),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_invitations_project_id"),
        sa.ForeignKeyConstraint(
            ["inviter_user_id"], ["users.id"], name="fk_invitations_inviter_user_id"
        ),
        sa.ForeignKeyConstraint(["accepted_by"], ["users.id"], name="fk_invitations_accepted_by"),
        sa.PrimaryKeyConstraint("id", name="pk_invitations"),
        sa.UniqueConstraint("secret_sha256", name="uq_invitations_secret_sha256"),
    )
    op.create_index("ix_invitations_account_id", "invitations", ["account_id"])
    op.create_index("ix_invitations_project_id", "invitations", ["project_id"])


def downgrade() -> None:
    op.drop_table("invitations")
    op.drop_table("account_members")
    op.drop_column("projects", "removed_at")
    op.drop_column("projects", "federated_logs")
    op.drop_column("projects", "federated_egress")
    op.drop_column("accounts", "removed_at")
