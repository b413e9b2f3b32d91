"""The ledger: balanced, once for each key, never edited; balances are the sums of postings."""

import threading
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlmodel import col, select

from activities.billing.ledger import FUNDING, Entry, LedgerError, add_credits, balance_of, post
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from tests.activities.rows import NOW, add_payer
from workflows.contracts.billing import TransactionKind


@pytest.fixture
def account(migrated: Database) -> tables.Account:
    with migrated.write() as session:
        return add_payer(session)


def entry(account: tables.Account, key: str, legs: dict[str, int]) -> Entry:
    return Entry(
        business_key=key,
        kind=TransactionKind.CREDITS,
        account_id=account.id,
        legs=legs,
        at=NOW,
        description="an entry",
    )


def credits_of(database: Database, account: tables.Account) -> int:
    with database.read() as session:
        return balance_of(session, f"account/{account.id}/credits")


def assert_books_are_right(database: Database) -> None:
    """Every transaction adds up to zero, and every balance is the sum of its postings."""
    with database.read() as session:
        postings = session.exec(select(tables.LedgerPosting)).all()
        accounts = session.exec(select(tables.LedgerAccount)).all()
    by_transaction: Counter[str] = Counter()
    by_account: Counter[str] = Counter()
    for posting in postings:
        by_transaction[posting.transaction_id] += posting.amount_microcredits
        by_account[posting.ledger_account] += posting.amount_microcredits
    assert set(by_transaction.values()) <= {0}
    assert {row.name: row.balance_microcredits for row in accounts} == dict(by_account)


def test_credits_come_from_the_platforms_funding(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        add_credits(session, account, 25_000_000, "first", NOW)
    assert credits_of(migrated, account) == 25_000_000
    with migrated.read() as session:
        assert balance_of(session, FUNDING) == -25_000_000
    assert_books_are_right(migrated)


def test_a_transaction_keeps_what_its_entry_says(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        told = replace(entry(account, "k", {"b": -5, "a": 5}), details={"why": "x"}, job_id="job-1")
        made = post(session, told)
        assert post(session, told).id == made.id
    with migrated.read() as session:
        (row,) = session.exec(select(tables.LedgerTransaction))
        legs = session.exec(
            select(tables.LedgerPosting).order_by(col(tables.LedgerPosting.leg))
        ).all()
        owners = {row.name: row.account_id for row in session.exec(select(tables.LedgerAccount))}
    assert (row.id, row.business_key, row.kind, row.account_id) == (
        made.id, "k", "credits", account.id,
    )  # fmt: skip
    assert (row.job_id, row.description, row.details, row.at) == (
        "job-1", "an entry", {"why": "x"}, NOW,
    )  # fmt: skip
    assert [(leg.leg, leg.ledger_account, leg.amount_microcredits) for leg in legs] == [
        (0, "b", -5),
        (1, "a", 5),
    ]
    assert {leg.transaction_id for leg in legs} == {made.id}
    assert owners == {"a": None, "b": None}


def test_added_credits_are_a_transaction_of_the_account(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        made = add_credits(session, account, 1, "first", NOW)
        assert (made.business_key, made.kind, made.account_id) == (
            "credits/first", "credits", account.id,
        )  # fmt: skip
        assert (made.at, made.description) == (NOW, "credits added")
        owners = {row.name: row.account_id for row in session.exec(select(tables.LedgerAccount))}
        assert owners == {f"account/{account.id}/credits": account.id, FUNDING: None}
        assert balance_of(session, "account/acc-none/credits") == 0


def test_a_key_that_stands_for_other_legs_is_refused_and_moves_nothing(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        post(session, entry(account, "k", {"a": 5, "b": -5}))
        post(session, entry(account, "other", {"a": 7, "b": -7}))
        for legs in ({"a": 7, "b": -7}, {"a": 5, "c": -5}, {"a": -5, "b": 5}):
            with pytest.raises(LedgerError, match="k: stands for"):
                post(session, entry(account, "k", legs))
        assert balance_of(session, "a") == 12


def test_the_same_key_adds_credits_once(migrated: Database, account: tables.Account) -> None:
    ids = set()
    for _ in range(3):
        with migrated.write() as session:
            ids.add(add_credits(session, account, 25, "same", NOW).id)
    assert len(ids) == 1
    assert credits_of(migrated, account) == 25


def test_another_amount_under_a_used_key_is_refused(
    migrated: Database, account: tables.Account
) -> None:
    with migrated.write() as session:
        add_credits(session, account, 25, "same", NOW)
    with migrated.write() as session, pytest.raises(LedgerError, match="stands for"):
        add_credits(session, account, 26, "same", NOW)
    assert credits_of(migrated, account) == 25


@pytest.mark.parametrize("amount", [0, -1])
def test_no_credits_are_not_added(migrated: Database, account: tables.Account, amount: int) -> None:
    with migrated.write() as session, pytest.raises(LedgerError, match="must be above 0"):
        add_credits(session, account, amount, "none", NOW)


@pytest.mark.parametrize(
    "legs",
    [{"a": 5, "b": -4}, {"a": 0, "b": 0}, {"a": 5, "b": -5, "c": 0}, {"a": 0}, {}],
)
def test_an_entry_that_moves_nothing_or_out_of_balance_is_refused(
    migrated: Database, account: tables.Account, legs: dict[str, int]
) -> None:
    why = "the legs add up to 1" if sum(legs.values()) else "must have two legs or more, none of 0"
    with migrated.write() as session, pytest.raises(LedgerError, match=f"odd: {why}"):
        post(session, entry(account, "odd", legs))
    with migrated.read() as session:
        assert session.exec(select(tables.LedgerTransaction)).all() == []


@pytest.mark.parametrize("table", ["ledger_transactions", "ledger_postings"])
@pytest.mark.parametrize("edit", ["UPDATE {} SET {} = {}", "DELETE FROM {}"])
def test_what_is_posted_cannot_be_edited(
    migrated: Database, account: tables.Account, table: str, edit: str
) -> None:
    with migrated.write() as session:
        add_credits(session, account, 25, "first", NOW)
    column = "amount_microcredits" if table == "ledger_postings" else "description"
    with pytest.raises(DBAPIError, match="append-only"), migrated.write() as session:
        session.connection().execute(text(edit.format(table, column, column)))
    assert credits_of(migrated, account) == 25


@how(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(amounts=st.lists(st.integers(-1000, 1000).filter(bool), min_size=1, max_size=12))
def test_balances_are_the_sums_of_postings(
    migrated: Database, account: tables.Account, amounts: list[int]
) -> None:
    with migrated.write() as session:
        for amount in amounts:
            post(session, entry(account, new_id("k"), {"a": amount, "b": -amount}))
    assert_books_are_right(migrated)


def test_each_posting_knows_the_balance_after_it(
    migrated: Database, account: tables.Account
) -> None:
    for amount in (10, 5, 7):
        with migrated.write() as session:
            add_credits(session, account, amount, new_id("k"), NOW)
    with migrated.read() as session:
        rows = session.exec(select(tables.LedgerPosting)).all()
    after = [row.balance_after_microcredits for row in rows if row.amount_microcredits > 0]
    assert sorted(after) == [10, 15, 22]


def test_many_at_once_with_the_same_keys_post_each_once(
    migrated: Database, account: tables.Account
) -> None:
    failures: list[BaseException] = []

    def fund() -> None:
        try:
            for number in range(20):
                with migrated.write() as session:
                    add_credits(session, account, 10, str(number), NOW)
        except BaseException as cause:  # noqa: BLE001 - every failure of a thread counts
            failures.append(cause)

    threads = [threading.Thread(target=fund) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert credits_of(migrated, account) == 200
    assert_books_are_right(migrated)
