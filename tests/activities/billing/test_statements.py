"""Statements: balances and pages are those of all movements, in the order of their instants."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from sqlmodel import select

from activities.billing.ledger import USAGE_FEES, Entry, post
from activities.billing.payers import credits_name
from activities.billing.statements import (
    EVERYTHING,
    Moved,
    Movements,
    Subjects,
    balance_of,
    every_movement,
    moved_between,
)
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from tests.activities.placement.rows import statements
from tests.activities.rows import add_job, add_payer
from workflows.contracts.billing import TransactionKind

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = (TransactionKind.CREDITS, TransactionKind.USAGE_FEE)
PROJECTS, JOBS, DEVICES = (None, "prj-1", "prj-2"), (None, "job-1", "job-2"), (None, "dev-1")
FILTERS = (
    EVERYTHING,
    Subjects(project_id="prj-1"),
    Subjects(provider_id="prv-1"),
    Subjects(region_id="reg-1", project_id="prj-2"),
    Subjects(job_id="job-1"),
    Subjects(device_id="dev-1", project_id="prj-1"),
)
instants = st.integers(-72, 72).map(lambda hours: NOON + timedelta(hours=hours))
"""Also midnights and noons, at which balances are read in another way."""
given_entries = st.lists(
    st.tuples(
        instants,
        st.integers(-1000, 1000).filter(bool),
        st.sampled_from(KINDS),
        st.sampled_from(PROJECTS),
        st.sampled_from((None, "prv-1")),
        st.sampled_from((None, "reg-1")),
        st.sampled_from(JOBS),
        st.sampled_from(DEVICES),
    ),
    max_size=25,
)


@pytest.fixture
def opened(migrated: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr("activities.billing.statements.database", lambda: migrated)
    return migrated


def move(database: Database, account_id: str, amount: int, at: datetime, **about: Any) -> str:
    entry = Entry(
        business_key=new_id("k"),
        kind=TransactionKind.USAGE_FEE,
        account_id=account_id,
        legs={credits_name(account_id): amount, USAGE_FEES: -amount},
        at=at,
        description="an entry",
        **about,
    )
    with database.write() as session:
        return post(session, entry).id


def posted(database: Database, found: list[tuple[object, ...]]) -> str:
    """A new account with these movements, posted in this order, which is not that of instants."""
    with database.write() as session:
        account_id = add_payer(session, new_id("acme")).id
        for at, amount, kind, project, provider, region, job, device in found:
            legs = {credits_name(account_id): amount, USAGE_FEES: -amount}  # type: ignore[operator]
            about = (project, provider, region, job, device)
            post(session, Entry(new_id("k"), kind, account_id, legs, at, "late", *about))  # type: ignore[arg-type]
    return account_id


def in_order(database: Database, account_id: str, about: Subjects) -> list[tuple[object, ...]]:
    """Instant, id, kind and amount of all movements, as all postings say."""
    with database.read() as session:
        rows = session.exec(
            select(tables.LedgerTransaction, tables.LedgerPosting)
            .where(tables.LedgerTransaction.account_id == account_id)
            .where(tables.LedgerPosting.transaction_id == tables.LedgerTransaction.id)
            .where(tables.LedgerPosting.ledger_account == credits_name(account_id))
        ).all()
    return sorted(
        (row.at, row.id, row.kind, leg.amount_microcredits)
        for row, leg in rows
        if all(getattr(row, name) == value for name, value in about.given.items())
    )


@how(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(given_entries, st.tuples(instants, instants), st.sampled_from(FILTERS), st.integers(1, 7))
def test_balances_totals_and_pages_are_those_of_all_movements(
    opened: Database,
    found: list[tuple[object, ...]],
    period: tuple[datetime, datetime],
    about: Subjects,
    at_once: int,
) -> None:
    begins, ends = period
    account_id = posted(opened, found)
    everything = in_order(opened, account_id, about)
    inside = [row for row in everything if begins <= row[0] < ends]  # type: ignore[operator]
    balance = sum(row[3] for row in everything if row[0] < begins)  # type: ignore[operator, misc]
    with opened.read() as session:
        movements = Movements(session, account_id, about)
        opening, until = movements.moved_before(begins), movements.moved_before(ends)
    assert balance_of(opening) == balance
    if begins <= ends:
        totals = moved_between(opening, until)
        kinds = {row[2] for row in inside}
        assert totals == {
            kind: sum(row[3] for row in inside if row[2] == kind)  # type: ignore[misc]
            for kind in kinds
        }
    lines = list(every_movement(account_id, about, (begins, ends), at_once))
    assert [line.transaction.id for line in lines] == [row[1] for row in inside]
    for line, row in zip(lines, inside, strict=True):
        balance += row[3]  # type: ignore[operator]
        assert (line.microcredits, line.balance_microcredits) == (row[3], balance)
        with opened.read() as session:
            movements = Movements(session, account_id, about)
            assert movements.balance_before(begins, line.position) == balance


def test_a_posting_that_comes_late_changes_the_balances_after_its_instant(
    opened: Database,
) -> None:
    account_id = posted(opened, [])
    move(opened, account_id, 100, NOON)

    def balance(at: datetime) -> int:
        with opened.read() as session:
            return Movements(session, account_id).balance_before(at)

    three_days = timedelta(days=3)
    assert (balance(NOON), balance(NOON + three_days)) == (0, 100)
    move(opened, account_id, -30, NOON - three_days)
    assert (balance(NOON - three_days), balance(NOON), balance(NOON + three_days)) == (0, -30, 70)


def test_transactions_of_an_earlier_release_are_about_the_project_of_their_job(
    opened: Database,
) -> None:
    with opened.write() as session:
        account = add_payer(session, "acme")
        job = add_job(session, account)
    at = NOON - timedelta(days=1)
    move(opened, account.id, -5, at, job_id=job.id)
    move(opened, account.id, -7, NOON, job_id="job-other")
    about = Subjects(project_id=job.project_id)
    with opened.read() as session:
        movements = Movements(session, account.id, about)
        assert movements.moved_before(NOON) == {"usage-fee": Moved(-5, 1)}
        assert movements.moved_before(at + timedelta(seconds=1)) == {"usage-fee": Moved(-5, 1)}
        (line,) = movements.page((at, NOON + timedelta(days=1)), 0, None, 10)
    assert (line.project_id, line.transaction.project_id) == (job.project_id, None)


def test_a_page_after_a_line_reads_nothing_that_comes_before_that_line(
    opened: Database,
) -> None:
    account_id = posted(opened, [])
    for second in range(3):
        move(opened, account_id, 1, NOON + timedelta(seconds=second))
    period = NOON - timedelta(days=3), NOON + timedelta(days=1)
    with opened.read() as session, statements() as seen:
        movements = Movements(session, account_id)
        [first] = movements.page(period, 0, None, 1)
        found = movements.page(period, first.balance_microcredits, first.position, 5)
    assert [line.balance_microcredits for line in found] == [2, 3]
    _, query = [sql for sql in seen if "LIMIT" in sql]
    # SQLite searches an index by one lower bound; with another one it read the whole period.
    assert query.count("ledger_transactions.at >= ") == 1


def test_a_statement_is_read_some_at_a_time_and_no_session_stays_open(
    opened: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    account_id = posted(opened, [])
    for second in range(7):
        move(opened, account_id, 1, NOON + timedelta(seconds=second))
    limits: list[int] = []
    page = Movements.page

    def counted(*asked: object) -> object:
        found = page(*asked)  # type: ignore[arg-type]
        limits.append(len(found))
        return found

    monkeypatch.setattr(Movements, "page", counted)
    lines = every_movement(account_id, EVERYTHING, (NOON, NOON + timedelta(hours=1)), at_once=3)
    assert next(lines).balance_microcredits == 1
    assert limits == [3], "no more is read than is asked for"
    move(opened, account_id, 10, NOON)  # It comes late, and before what is read already.
    assert [line.balance_microcredits for line in lines] == [2, 3, 4, 5, 6, 7]
    assert limits == [3, 3, 1]
