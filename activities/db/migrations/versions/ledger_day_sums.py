"""Add up the postings of each day, so that a statement does not read all that came before it.

A trigger adds each posting, so that code of before this revision does so, too.

Revision: 0041, after 0040
"""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None
oldest_code_revision = "0027"
"""The oldest code that runs beside this schema: it only expands."""
KEY = ("ledger_account", "day", "kind", "project_id", "provider_id", "region_id")
COLUMNS = ", ".join((*KEY, "amount_microcredits", "posting_count"))
SUBJECTS = (
    "t.kind, coalesce(t.project_id, (SELECT j.project_id FROM jobs j WHERE j.id = t.job_id), ''), "
    "coalesce(t.provider_id, ''), coalesce(t.region_id, '')"
)
DAY_ON_SQLITE = "substr(t.at, 1, 10)"
DAY_ON_POSTGRESQL = "to_char(t.at AT TIME ZONE 'UTC', 'YYYY-MM-DD')"


def upgrade() -> None:
    op.create_table(
        "ledger_day_sums",
        *(sa.Column(name, sa.String(), nullable=False) for name in KEY),
        sa.Column("amount_microcredits", sa.BigInteger(), nullable=False),
        sa.Column("posting_count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(*KEY),
    )
    op.create_index("ledger_transactions_of_device", "ledger_transactions", ["device_id"])
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    day = DAY_ON_POSTGRESQL if is_postgresql else DAY_ON_SQLITE
    # The trigger first: on PostgreSQL it waits for those who post, and keeps others from posting.
    if is_postgresql:
        op.execute(
            "CREATE FUNCTION add_to_ledger_day() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {_addition(day)}; RETURN NULL; END $$"
        )
        op.execute(
            "CREATE TRIGGER ledger_postings_add_to_day AFTER INSERT ON ledger_postings "
            "FOR EACH ROW EXECUTE FUNCTION add_to_ledger_day()"
        )
    else:
        op.execute(
            "CREATE TRIGGER ledger_postings_add_to_day AFTER INSERT ON ledger_postings "
            f"BEGIN {_addition(day)}; END"
        )
    op.execute(sums_of_before(day))


def sums_of_before(day: str) -> str:
    """The statement that adds up the postings that are there."""
    return (
        f"INSERT INTO ledger_day_sums ({COLUMNS}) "  # noqa: S608 - of constants
        f"SELECT p.ledger_account, {day}, {SUBJECTS}, sum(p.amount_microcredits), count(*) "
        "FROM ledger_postings p JOIN ledger_transactions t ON t.id = p.transaction_id "
        "GROUP BY 1, 2, 3, 4, 5, 6"
    )


def _addition(day: str) -> str:
    return (
        f"INSERT INTO ledger_day_sums ({COLUMNS}) "  # noqa: S608 - of constants
        f"SELECT NEW.ledger_account, {day}, {SUBJECTS}, NEW.amount_microcredits, 1 "
        "FROM ledger_transactions t WHERE t.id = NEW.transaction_id "
        f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET "
        "amount_microcredits = ledger_day_sums.amount_microcredits + excluded.amount_microcredits, "
        "posting_count = ledger_day_sums.posting_count + 1"
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER ledger_postings_add_to_day ON ledger_postings")
        op.execute("DROP FUNCTION add_to_ledger_day()")
    else:
        op.execute("DROP TRIGGER ledger_postings_add_to_day")
    op.drop_index("ledger_transactions_of_device", "ledger_transactions")
    op.drop_table("ledger_day_sums")
