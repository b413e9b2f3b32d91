"""Reversals: the opposite legs, once for each transaction, and what a job is charged follows."""

import threading
from datetime import timedelta

import pytest
from sqlmodel import col, select

from activities.billing.ledger import FUNDING, USAGE_FEES, LedgerError, add_credits, balance_of
from activities.billing.payers import credits_name
from activities.billing.reversals import reverse
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.session import Database
from tests.activities.billing.test_ledger import assert_books_are_right
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import UsageRates, WorkerUsage

LATER = NOW + timedelta(days=3)
RATES = UsageRates(gpu_count=2, microcredits_per_gpu_hour=250_000).model_dump(mode="json")


@pytest.fixture
def job(migrated: Database) -> tables.Job:
    """A job that has cost an hour of two A100, half a credit."""
    with migrated.write() as session:
        account = add_payer(session)
        job = add_job(session, account)
        job.status, job.rates = "running", {"0": RATES}
        allocate(session, job, add_node(session, add_region(session, account)), 0)
        usage = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=NOW, through_s=3600)
        post_worker_usage(session, usage)
        return job


def only(database: Database, kind: str) -> tables.LedgerTransaction:
    with database.read() as session:
        of_kind = col(tables.LedgerTransaction.kind) == kind
        return session.exec(select(tables.LedgerTransaction).where(of_kind)).one()


def test_a_reversal_is_the_opposite_of_what_it_takes_back(
    migrated: Database, job: tables.Job
) -> None:
    charge = only(migrated, "usage-fee")
    with migrated.write() as session:
        made = reverse(session, charge, "the node was broken", LATER)
    assert made == only(migrated, "reversal")
    about = ("account_id", "project_id", "provider_id", "region_id", "job_id", "device_id")
    assert all(getattr(made, name) == getattr(charge, name) for name in about)
    assert (made.reverses_id, made.business_key, made.at) == (
        charge.id, f"reversal/{charge.id}", LATER,
    )  # fmt: skip
    assert made.description == f"reversal of {charge.id}: the node was broken"
    assert made.details == {"reason": "the node was broken", "kind": "usage-fee"}
    with migrated.read() as session:
        assert balance_of(session, credits_name(charge.account_id)) == 0
        assert balance_of(session, USAGE_FEES) == 0
        row = session.get_one(tables.Job, job.id)
        meter = session.exec(select(tables.UsageMeter)).one()
    assert (row.charged_microcredits, row.gpu_seconds) == (0, 7200)
    assert meter.posted_microcredits == 500_000, "what was measured stays"
    assert_books_are_right(migrated)


def test_a_reversed_charge_is_not_charged_again_and_later_hours_are(
    migrated: Database, job: tables.Job
) -> None:
    charge = only(migrated, "usage-fee")
    usage = WorkerUsage(job_id=job.id, worker=0, attempt=1, started_at=NOW, through_s=7200)
    with migrated.write() as session:
        reverse(session, charge, "why", LATER)
        assert post_worker_usage(session, usage).microcredits == 500_000
    with migrated.read() as session:
        assert session.get_one(tables.Job, job.id).charged_microcredits == 500_000
        assert balance_of(session, credits_name(charge.account_id)) == -500_000


def test_credits_are_taken_back_with_their_reversal(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        given = add_credits(session, account, 25, "first", NOW)
        reverse(session, given, "a mistake", LATER)
        assert balance_of(session, credits_name(account.id)) == 0
        assert balance_of(session, FUNDING) == 0
        assert add_credits(session, account, 25, "first", NOW).id == given.id, "it stays posted"
        assert balance_of(session, credits_name(account.id)) == 0


def test_a_reversal_that_is_asked_for_again_is_the_same(
    migrated: Database, job: tables.Job
) -> None:
    charge = only(migrated, "usage-fee")
    made = []
    for reason in ("first", "second"):
        with migrated.write() as session:
            made.append(reverse(session, charge, reason, LATER))
    assert made[0] == made[1]
    with migrated.read() as session:
        assert session.get_one(tables.Job, job.id).charged_microcredits == 0


def test_a_reversal_is_not_taken_back(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        made = reverse(session, only(migrated, "usage-fee"), "why", LATER)
    with migrated.write() as session, pytest.raises(LedgerError, match=f"{made.id}: is the rev"):
        reverse(session, made, "again", LATER)
    assert job.id


def test_many_who_reverse_one_transaction_at_once_reverse_it_once(
    migrated: Database, job: tables.Job
) -> None:
    charge, failures = only(migrated, "usage-fee"), []

    def ask(number: int) -> None:
        try:
            with migrated.write() as session:
                row = session.get_one(tables.LedgerTransaction, charge.id)
                reverse(session, row, f"reason {number}", LATER)
        except BaseException as cause:  # noqa: BLE001 - every failure of a thread counts
            failures.append(cause)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with migrated.read() as session:
        assert session.get_one(tables.Job, job.id).charged_microcredits == 0
    assert only(migrated, "reversal").reverses_id == charge.id
    assert_books_are_right(migrated)
