"""The audit of the ledger: nothing is reported of right books, and each defect is."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlmodel import Session, select

from activities.billing.ledger import USAGE_FEES, Entry, add_credits, post
from activities.billing.ledger_audit import audit as module
from activities.billing.ledger_audit.audit import CHECKS, LedgerAudit, audit
from activities.billing.ledger_audit.books import BOOKS
from activities.billing.ledger_audit.checks import Check, Difference, batches
from activities.billing.ledger_audit.usage import USAGE
from activities.billing.payers import credits_name
from activities.billing.reversals import reverse
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.session import Database
from tests.activities.cloud_rows import add_cloud_region, add_lease
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import TransactionKind, UsageRates, WorkerUsage

LATER = NOW + timedelta(days=1)
RATES = UsageRates(gpu_count=1, microcredits_per_gpu_hour=250_001).model_dump(mode="json")
TABLES = ("ledger_transactions", "ledger_postings")


@pytest.fixture
def books(migrated: Database) -> Database:
    """Books of two accounts with credits, charges, a free run, a reversal and a lease."""
    with migrated.write() as session:
        for name in ("acme", "umbrella"):
            account = add_payer(session, name)
            region = add_region(session, account)
            add_credits(session, account, 10_000_000, name, NOW)
            for seconds, attempt in ((3 * 3600 + 17, 1), (59, 1)):
                job = add_job(session, account)
                node = add_node(session, region, f"{name}-{job.id}")
                allocate(session, job, node, 0).rates = RATES
                session.flush()
                usage = {"job_id": job.id, "worker": 0, "attempt": attempt, "started_at": NOW}
                post_worker_usage(session, WorkerUsage(**usage, through_s=seconds // 2))
                post_worker_usage(session, WorkerUsage(**usage, through_s=seconds))
            free = add_job(session, account)
            post_worker_usage(
                session,
                WorkerUsage(job_id=free.id, worker=0, attempt=1, started_at=NOW, through_s=9),
            )
            cloud = add_cloud_region(session, account)
            add_lease(session, cloud, "nod-1", began_at=NOW, ended_at=LATER,
                      microcredits_per_hour=7)  # fmt: skip
        fees = tables.LedgerTransaction.kind == "usage-fee"
        charge = session.exec(select(tables.LedgerTransaction).where(fees)).first()
        assert charge is not None
        reverse(session, charge, "the node was broken", LATER)
    return migrated


def audited(database: Database) -> LedgerAudit:
    with database.read() as session:
        return audit(session)


def found_by(database: Database) -> set[str]:
    return {each.check for each in audited(database).differences}


def in_sql(database: Database, *statements: str) -> None:
    """Change what cannot be edited, as somebody with the database's own tools would."""
    with database.write() as session:
        connection = session.connection()
        if database.is_sqlite:
            triggers = connection.execute(
                text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            ).all()
            for name, _ in triggers:
                connection.execute(text(f"DROP TRIGGER {name}"))
            connection.execute(text("PRAGMA defer_foreign_keys = ON"))
        else:
            triggers = []
            for table in (*TABLES, "ledger_day_sums"):
                connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        for statement in statements:
            changed = connection.execute(text(statement)).rowcount
            assert changed > 0, statement
        for _, sql in triggers:
            connection.execute(text(sql.replace(":", "\\:")))
        if not database.is_sqlite:
            for table in (*TABLES, "ledger_day_sums"):
                connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))


def test_of_right_books_nothing_is_reported(books: Database) -> None:
    found = audited(books)
    assert found.differences == ()
    assert found.is_clean
    assert {each.name: each.difference_count for each in found.checks} == {
        check.name: 0 for check in CHECKS
    }
    counts = (found.transaction_count, found.ledger_account_count, found.meter_count)
    assert counts[1:] == (4, 6)
    assert found.posting_count == 2 * found.transaction_count > 0


def test_of_an_empty_ledger_nothing_is_reported(migrated: Database) -> None:
    assert audited(migrated).is_clean


FEE = "(SELECT id FROM ledger_transactions WHERE kind = 'usage-fee' ORDER BY id DESC LIMIT 1)"
GIVEN = "(SELECT min(id) FROM ledger_transactions WHERE kind = 'credits')"
RUN = "(SELECT max(job_id) FROM usage_meters WHERE posted_s = 59)"
DEFECTS: dict[str, tuple[str, set[str]]] = {
    "a balance": (
        (
            "UPDATE ledger_accounts SET balance_microcredits = balance_microcredits + 1 "
            f"WHERE name = '{USAGE_FEES}'"
        ),
        {"zero", "balances", "chains"},
    ),
    "the amount of one leg": (
        (
            "UPDATE ledger_postings SET amount_microcredits = amount_microcredits + 1 "
            f"WHERE transaction_id = {FEE} AND leg = 1"
        ),
        {"zero", "balances", "transactions", "chains", "days", "slices"},
    ),
    "both legs of a charge": (
        (
            "UPDATE ledger_postings SET amount_microcredits = 2 * amount_microcredits "
            f"WHERE transaction_id = {FEE}"
        ),
        {"balances", "chains", "days", "slices", "jobs"},
    ),
    "a balance after a posting": (
        (
            "UPDATE ledger_postings SET "
            "balance_after_microcredits = balance_after_microcredits + 1 "
            f"WHERE transaction_id = {FEE} AND leg = 1"
        ),
        {"chains"},
    ),
    "a posting that is gone": (
        f"DELETE FROM ledger_postings WHERE transaction_id = {FEE}",
        {"balances", "transactions", "chains", "days", "slices", "jobs"},
    ),
    "the kind of a transaction": (
        f"UPDATE ledger_transactions SET kind = 'bogus' WHERE id = {FEE}",
        {"transactions", "days", "slices"},
    ),
    "the instant of a transaction": (
        f"UPDATE ledger_transactions SET at = '2026-05-01 00:00:00.000000' WHERE id = {GIVEN}",
        {"days"},
    ),
    "the account of a transaction": (
        (
            "UPDATE ledger_transactions SET account_id = (SELECT max(id) FROM accounts) "
            f"WHERE id = {GIVEN}"
        ),
        {"owners", "credits"},
    ),
    "the sum of a day": (
        (
            "UPDATE ledger_day_sums SET amount_microcredits = amount_microcredits + 1 "
            "WHERE kind = 'credits'"
        ),
        {"days"},
    ),
    "a day that is gone": ("DELETE FROM ledger_day_sums WHERE kind = 'reversal'", {"days"}),
    "a reversal of nothing": (
        "UPDATE ledger_transactions SET reverses_id = 'txn-none' WHERE kind = 'reversal'",
        {"reversals"},
    ),
    "a charge that says that it is a reversal": (
        f"UPDATE ledger_transactions SET reverses_id = {GIVEN} WHERE id = {FEE}",
        {"reversals"},
    ),
    "what a job is charged": (
        f"UPDATE jobs SET charged_microcredits = charged_microcredits + 1 WHERE id = {RUN}",
        {"jobs"},
    ),
    "the GPU seconds of a job": (
        f"UPDATE jobs SET gpu_seconds = gpu_seconds + 1 WHERE id = {RUN}",
        {"gpu-seconds"},
    ),
    "what a meter has posted": (
        (
            f"UPDATE usage_meters SET posted_microcredits = posted_microcredits + 1 "
            f"WHERE job_id = {RUN}"
        ),
        {"meters", "slices"},
    ),
    "the seconds of a meter": (
        f"UPDATE usage_meters SET posted_s = posted_s + 100 WHERE job_id = {RUN}",
        {"meters", "gpu-seconds"},
    ),
    "the rate of a meter": (
        (
            "UPDATE usage_meters SET microcredits_per_hour = microcredits_per_hour + 1 "
            f"WHERE job_id = {RUN}"
        ),
        {"meters"},
    ),
    "the rates of a meter": (
        "UPDATE usage_meters SET rates = '"
        + json.dumps(RATES | {"microcredits_per_gpu_hour": 9_000_000})
        + f"' WHERE job_id = {RUN}",
        {"meters", "slices"},
    ),
    "the rates of an allocation": (
        (
            f"UPDATE allocations SET rates = '{json.dumps(RATES | {'gpu_count': 2})}' "
            f"WHERE job_id = {RUN}"
        ),
        {"meters"},
    ),
    "the end of an allocation": (
        (
            "UPDATE allocations SET released_at = '2026-03-01 12:00:01.000000+00' "
            "WHERE job_id = (SELECT max(job_id) FROM usage_meters WHERE posted_s > 3600)"
        ),
        {"meters"},
    ),
    "the payer of a meter": (
        (
            "UPDATE usage_meters SET payer_id = (SELECT id FROM accounts WHERE id != payer_id "
            f"ORDER BY id LIMIT 1) WHERE job_id = {RUN}"
        ),
        {"slices"},
    ),
    "the federated fee of a meter": (
        (
            "UPDATE usage_meters SET federated_microcredits = federated_microcredits + 1, "
            f"federated_payer_id = payer_id WHERE job_id = {RUN}"
        ),
        {"federated", "federated-fees"},
    ),
    "a meter that is gone": (
        f"DELETE FROM usage_meters WHERE job_id = {RUN}",
        {"slices", "gpu-seconds"},
    ),
    "a lease without a price": (
        "UPDATE leases SET microcredits_per_hour = NULL",
        {"leases"},
    ),
    "a lease that ends before it begins": (
        "UPDATE leases SET ended_at = '2026-02-01 00:00:00.000000+00'",
        {"leases"},
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_defect_is_reported_by_the_checks_that_it_concerns(
    books: Database, defect: str
) -> None:
    statement, expected = DEFECTS[defect]
    in_sql(books, statement)
    assert found_by(books) == expected


def test_each_check_has_a_defect_that_it_reports() -> None:
    reported = set().union(*(checks for _, checks in DEFECTS.values()))
    assert {check.name for check in (*BOOKS, *USAGE)} - reported == {"payers"}


def _wrong(kind: TransactionKind, legs: Callable[[str], dict[str, int]]) -> Callable[..., None]:
    def write(session: Session) -> None:
        account = session.exec(select(tables.Account)).first()
        assert account is not None
        post(session, Entry("odd", kind, account.id, legs(account.id), NOW, "odd"))

    return write


def test_a_charge_that_goes_elsewhere_than_to_the_platform_is_reported(books: Database) -> None:
    def elsewhere(account_id: str) -> dict[str, int]:
        return {credits_name(account_id): -5, "platform/funding": 5}

    with books.write() as session:
        _wrong(TransactionKind.USAGE_FEE, elsewhere)(session)
    assert found_by(books) == {"payers", "slices"}


def test_what_is_reported_names_the_transaction_and_both_amounts(books: Database) -> None:
    in_sql(books, DEFECTS["both legs of a charge"][0])
    with books.read() as session:
        [charge] = session.connection().execute(text(f"SELECT * FROM {FEE} AS fee")).scalars()
    wrong = [each for each in audited(books).differences if each.check == "slices"]
    by_subject = {each.subject: each for each in wrong}
    assert int(by_subject[charge].found) == 2 * int(by_subject[charge].expected) > 0
    assert by_subject[charge].what.startswith("the cost of seconds ")


def test_the_report_keeps_some_differences_and_counts_all(
    books: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_DIFFERENCES", 2)

    def many(_: Session) -> object:
        return (Difference("many", str(number), "w", "e", "f") for number in range(5))

    with books.read() as session:
        found = audit(session, (Check("many", "of another room", many),))  # type: ignore[arg-type]
    assert [each.subject for each in found.differences] == ["0", "1"]
    assert [each.difference_count for each in found.checks] == [5]


def test_rows_are_read_in_batches_that_leave_none_out(books: Database) -> None:
    key = tables.LedgerTransaction.id
    with books.read() as session:
        every = sorted(session.exec(select(key)))
        for at_once in (1, 2, len(every), len(every) + 1):
            found = list(batches(session, select(key), key, at_once))
            assert [row[0] for batch in found for row in batch] == every
            assert max(map(len, found)) <= at_once
