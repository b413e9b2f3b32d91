"""A statement of 1,000,000 postings, on SQLite and on PostgreSQL: a page, the CSV, the audit."""

import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name
from activities.billing.statements import EVERYTHING, Movements, Subjects
from activities.db.migrations.versions import ledger_day_sums
from activities.db.session import Database
from api.pagination import PageQuery, read_cursor
from api.services import billing
from tests.activities.rows import add_payer
from tests.bench.home import home
from tests.bench.measure import Row, best_s, ms
from tests.bench.stack import scaled
from tests.postgresql_server import PostgresqlServer

POSTINGS = 1_000_000
DAYS = 30
BEGINS = datetime(2026, 3, 1, tzinfo=UTC)
PERIOD = (BEGINS + timedelta(hours=18), BEGINS + timedelta(days=DAYS))
AIM_S = 0.1
ACCOUNTS = """INSERT INTO ledger_accounts (name, account_id, balance_microcredits)
    VALUES ('{name}', '{account}', -{count}), ('platform/usage-fees', NULL, {count})"""
TRANSACTIONS = """INSERT INTO ledger_transactions
    (id, business_key, kind, account_id, project_id, provider_id, region_id, job_id, description,
     details, at)
    SELECT {id}, 'bench/' || n, 'storage', '{account}', 'prj-' || (n % 5), 'prv-' || (n % 3),
        'reg-' || (n % 3), NULL, 'an hour of a bench', '{{}}', {at}
    FROM {numbers}"""
LEGS = """INSERT INTO ledger_postings
    (transaction_id, leg, ledger_account, amount_microcredits, balance_after_microcredits)
    SELECT {id}, 0, '{name}', -1, -n - 1 FROM {numbers}
    UNION ALL SELECT {id}, 1, 'platform/usage-fees', 1, n + 1 FROM {numbers}"""


def rows() -> list[Row]:
    """The rows of both databases; one that says why, where PostgreSQL is not installed."""
    with home() as (_, opened):
        found = _rows("SQLite", opened)
    try:
        server = PostgresqlServer("-c listen_addresses='' -c shared_buffers=128MB")
        server.start()
    except FileNotFoundError as missing:
        return [*found, Row("PostgreSQL: statement", "not measured", str(missing))]
    try:
        with home(database_url=server.url(server.create())) as (_, opened):
            found += _rows("PostgreSQL", opened)
    finally:
        server.stop()
    return found


def _rows(where: str, opened: Database) -> list[Row]:
    count = scaled(POSTINGS)
    started = time.perf_counter()
    account_id = _fill(opened, count)
    filled_s = time.perf_counter() - started
    name = f"{where}: statement of {count:,} postings"
    found = [Row(f"{name}: posted in one transaction", f"{count / filled_s:,.0f} postings/s")]
    for what, about, limit, after in (
        ("first page of 50", EVERYTHING, 50, None),
        ("first page of 500", EVERYTHING, 500, None),
        ("a page of 50 after half of all", EVERYTHING, 50, _half(opened, account_id)),
        ("first page of 50, of one project", Subjects(project_id="prj-1"), 50, None),
    ):
        page_s = best_s(_page(opened, account_id, about, PageQuery(limit=limit, before=after)))
        found.append(Row(f"{name}: {what}", ms(page_s), _all_s(opened, account_id),
                         f"< {ms(AIM_S)}", page_s < AIM_S))  # fmt: skip
    return [*found, _csv_row(name, account_id, count), _audit_row(name, opened)]


def _fill(opened: Database, count: int) -> str:
    """A new account with these movements, one in each transaction, in one commit.

    The sums of their days are written by the query of the migration: in one commit, PostgreSQL
    would keep every version of the rows that its trigger changes.
    """
    with opened.write() as session:
        account_id = add_payer(session).id
        # In the order of posting, instants are far apart, as when usage comes late.
        seconds = f"((n * 7) % {count}) * {DAYS * 86400} / {count}"
        begins = f"{BEGINS:%Y-%m-%d}"
        given = {
            "account": account_id,
            "name": credits_name(account_id),
            "count": count,
            "id": "'txn-' || substr('0000000000' || n, -10)",
            "at": f"strftime('%Y-%m-%d %H:%M:%S.000000', '{begins}', ({seconds}) || ' seconds')",
            "numbers": "(WITH RECURSIVE up(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM up "
            f"WHERE n < {count - 1}) SELECT n FROM up) AS numbers",
        }
        before = "DROP TRIGGER ledger_postings_add_to_day"
        if not opened.is_sqlite:
            given |= {
                "id": "'txn-' || lpad(n::text, 10, '0')",
                "at": f"'{BEGINS.isoformat()}'::timestamptz + ({seconds}) * interval '1 second'",
                "numbers": f"generate_series(0::bigint, {count - 1}) AS numbers(n)",
            }
            before = "ALTER TABLE ledger_postings DISABLE TRIGGER ledger_postings_add_to_day"
        filling = [statement.format(**given) for statement in (ACCOUNTS, TRANSACTIONS, LEGS)]
        days = (ledger_day_sums.DAY_ON_POSTGRESQL, ledger_day_sums.DAY_ON_SQLITE)
        day = days[opened.is_sqlite]
        if not opened.is_sqlite:  # Its checks of foreign keys take minutes.
            session.connection().execute(text("SET LOCAL session_replication_role = replica"))
        for statement in (before, *filling, ledger_day_sums.sums_of_before(day)):
            session.connection().execute(text(statement.replace(":", "\\:")))
    with opened.connection() as connection:
        connection.exec_driver_sql("ANALYZE")
    return account_id


def _page(
    opened: Database, account_id: str, about: Subjects, query: PageQuery
) -> Callable[[], str]:
    """What answers `GET /v1/statement`, with its JSON."""

    def read() -> str:
        with opened.read() as session:
            movements = Movements(session, account_id, about)
            return billing.statement(movements, PERIOD, query).model_dump_json()

    return read


def _half(opened: Database, account_id: str) -> str:
    middle = (BEGINS + timedelta(days=DAYS / 2, hours=5), PERIOD[1])
    with opened.read() as session:
        page = billing.statement(
            Movements(session, account_id), middle, PageQuery(limit=1, before=None)
        )
    return read_cursor(page.next or "")


def _all_s(opened: Database, account_id: str) -> str:
    """The yardstick: the sum of all postings of the account, as its opening used to be read."""
    query = text(
        "SELECT sum(amount_microcredits) FROM ledger_postings p JOIN ledger_transactions t "
        "ON t.id = p.transaction_id WHERE ledger_account = :name AND t.at < :until"
    )

    def read() -> None:
        until = PERIOD[1] if not opened.is_sqlite else f"{PERIOD[1]:%Y-%m-%d}"
        with opened.read() as session:
            named = {"name": credits_name(account_id), "until": until}
            session.connection().execute(query, named).scalar_one()

    return f"the sum of all postings: {ms(best_s(read, 1))}"


def _csv_row(name: str, account_id: str, count: int) -> Row:
    before, started = _peak_mib(), time.perf_counter()
    size = sum(len(piece) for piece in billing.statement_csv(account_id, EVERYTHING, PERIOD))
    seconds = time.perf_counter() - started
    return Row(
        f"{name}: CSV",
        f"{seconds:.1f} s, {count / seconds:,.0f} lines/s",
        f"{size / 1e6:,.0f} MB, {_peak_mib() - before:.0f} MiB more memory at most",
    )


def _audit_row(name: str, opened: Database) -> Row:
    before, started = _peak_mib(), time.perf_counter()
    with opened.read() as session:
        found = audit(session)
    seconds = time.perf_counter() - started
    clean = "nothing differs" if found.is_clean else f"{found.differences[0]}"
    return Row(
        f"{name}: audit of {found.posting_count:,} postings",
        f"{seconds:.1f} s",
        f"{clean}, {_peak_mib() - before:.0f} MiB more memory at most",
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
