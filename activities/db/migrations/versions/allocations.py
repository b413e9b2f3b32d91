"""Say of an allocation in which state it is; name the primary key of the outbox for its table.

Revision: 0010, after 0009
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

STATES = "'held', 'notified', 'running', 'leaving', 'gone'"


def upgrade() -> None:
    # Both databases add a column with its check in this way; a batch would copy SQLite's table.
    # The default is for the release before, which adds rows without a state.
    op.execute(
        "ALTER TABLE allocations ADD COLUMN state VARCHAR NOT NULL DEFAULT 'held' "
        f"CONSTRAINT ck_allocations_state CHECK (state IN ({STATES}))"
    )
    op.execute("UPDATE allocations SET state = 'notified' WHERE notified_at IS NOT NULL")
    op.execute(
        "UPDATE allocations SET state = 'running' WHERE notified_at IS NOT NULL AND NOT EXISTS "
        "(SELECT 1 FROM jobs WHERE jobs.id = allocations.job_id AND jobs.attempt = "
        "allocations.attempt AND jobs.status = 'waiting_for_resources')"
    )
    op.execute("UPDATE allocations SET state = 'gone' WHERE released_at IS NOT NULL")
    rename_primary_key("pk_requests", "pk_outbox")


def downgrade() -> None:
    rename_primary_key("pk_outbox", "pk_requests")
    with op.batch_alter_table("allocations") as allocations:
        allocations.drop_constraint("ck_allocations_state", type_="check")
        allocations.drop_column("state")


def rename_primary_key(old: str, new: str) -> None:
    """PostgreSQL keeps the names of constraints when a table is renamed, SQLite has none."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE outbox RENAME CONSTRAINT {old} TO {new}")
