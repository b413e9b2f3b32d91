"""Chain the audit entries of each account, and refuse their edits; know who acted, and from where.

Entries may still be removed once they are older than their retention. What an older process writes
meanwhile has no number, and is counted when the chains are verified.

Revision: 0022, after 0021
"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None
oldest_code_revision = "0020"

NEW_COLUMNS = {
    "actor_account_id": sa.String(),
    "acting_as": sa.String(),
    "address": sa.String(),
    "outcome": sa.String(),
    "count": sa.Integer(),
    "number": sa.Integer(),
    "previous_sha256": sa.String(),
    "sha256": sa.String(),
}
KEPT_DAYS = 399
"""A day less than the retention, because clocks differ."""


def upgrade() -> None:
    for name, kind in NEW_COLUMNS.items():
        op.add_column("audit", sa.Column(name, kind, nullable=True))
    op.create_index("ix_audit_actor_account_id", "audit", ["actor_account_id"], unique=False)
    op.create_index("audit_chain", "audit", ["account_id", "number"], unique=True)
    op.create_table(
        "audit_chains",
        sa.Column("account_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("removed_number", sa.Integer(), nullable=False),
        sa.Column("removed_sha256", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("account_id", name="pk_audit_chains"),
    )
    if op.get_bind().dialect.name == "postgresql":
        _refuse_edits_on_postgresql()
    else:
        _refuse_edits_on_sqlite()


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for verb in ("truncate", "delete", "update"):
            op.execute(f"DROP TRIGGER audit_refuse_{verb} ON audit")
        op.execute("DROP FUNCTION refuse_audit_removal")
    else:
        for verb in ("delete", "update"):
            op.execute(f"DROP TRIGGER audit_refuse_{verb}")
    op.drop_table("audit_chains")
    op.drop_index("audit_chain", table_name="audit")
    op.drop_index("ix_audit_actor_account_id", table_name="audit")
    for name in reversed(NEW_COLUMNS):
        op.drop_column("audit", name)


def _refuse_edits_on_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION refuse_audit_removal() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF OLD.at < now() - interval '{KEPT_DAYS} days' THEN RETURN OLD; END IF; "
        "RAISE EXCEPTION 'audit is append-only'; END $$"
    )
    op.execute(
        "CREATE TRIGGER audit_refuse_delete BEFORE DELETE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION refuse_audit_removal()"
    )
    for verb in ("UPDATE", "TRUNCATE"):
        op.execute(
            f"CREATE TRIGGER audit_refuse_{verb.lower()} BEFORE {verb} ON audit "
            "FOR EACH STATEMENT EXECUTE FUNCTION refuse_edit()"
        )


def _refuse_edits_on_sqlite() -> None:
    refuse = "BEGIN SELECT RAISE(ABORT, 'audit is append-only'); END"
    op.execute(f"CREATE TRIGGER audit_refuse_update BEFORE UPDATE ON audit {refuse}")
    op.execute(
        "CREATE TRIGGER audit_refuse_delete BEFORE DELETE ON audit "
        f"WHEN OLD.at >= strftime('%Y-%m-%d %H:%M:%S', 'now', '-{KEPT_DAYS} days') {refuse}"
    )
