"""What jobs have cost before anybody has posted it, on the rows that bills are made from."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlmodel import Session, select

from activities.billing.accrued import Accrued, accrued_of, microcredits_per_hour_of
from activities.billing.ledger import add_credits
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.session import Database
from activities.settings import settings
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import WorkerUsage
from workflows.rules.billing.usage_fees import usage_rates

RATE = 2 * 250_000
"""Microcredits per hour of two A100."""


@pytest.fixture
def job_id(migrated: Database) -> str:
    """A job that runs since NOW, and of which nothing is posted."""
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 9_000_000, "first", NOW)
        job = add_job(session, account)
        rates = usage_rates("A100", 2, 2, NOW, cpu_core_hour=0).model_dump(mode="json")
        job.status, job.rates, job.workers = "running", {"0": rates}, [{"index": 0}]
        node = add_node(session, add_region(session, account))
        allocate(session, job, node, 0)
        session.flush()
        post_worker_usage(session, _usage(job.id, 0))
        return job.id


def _usage(job_id: str, through_s: int) -> WorkerUsage:
    return WorkerUsage(job_id=job_id, worker=0, attempt=1, started_at=NOW, through_s=through_s)


def accrued(session: Session, job_id: str, at: datetime) -> Accrued:
    return accrued_of(session, [session.get_one(tables.Job, job_id)], at)[job_id]


def after(**duration: Any) -> datetime:
    return NOW + timedelta(**duration)


def test_what_is_accrued_is_what_the_bill_posts_for_the_same_seconds(
    migrated: Database, job_id: str
) -> None:
    with migrated.write() as session:
        for seconds in (0, 1, 617, 1001):
            job = session.get_one(tables.Job, job_id)
            before = job.charged_microcredits
            found = accrued(session, job_id, after(seconds=seconds))
            post_worker_usage(session, _usage(job_id, seconds))
            session.flush()
            session.refresh(job)
            assert found.unposted_microcredits == job.charged_microcredits - before
            assert accrued(session, job_id, after(seconds=seconds)) == Accrued(0, RATE)


def test_at_most_one_billing_period_is_accrued_after_the_last_posting(
    migrated: Database, job_id: str
) -> None:
    with migrated.write() as session:
        post_worker_usage(session, _usage(job_id, 600))
        found = accrued(session, job_id, after(days=9))
    assert found.unposted_microcredits == RATE * settings().billing_period_s // 3600


def test_nothing_is_accrued_after_an_outage_a_release_or_the_end_of_the_command(
    migrated: Database, job_id: str
) -> None:
    half = Accrued(RATE // 2, RATE)
    with migrated.write() as session:
        job = session.get_one(tables.Job, job_id)
        job.status, job.updated_at = "unreachable", after(minutes=30)
        assert accrued(session, job_id, after(minutes=50)) == half
        job.status = "running"
        job.workers = [{"index": 0, "exit": {"exit_code": 0}, "elapsed_s": 1800.4}]
        assert accrued(session, job_id, after(minutes=50)) == Accrued(RATE // 2, 0)
        job.workers = []
        session.add(job)
        session.flush()
        for held in session.exec(select(tables.Allocation)):
            held.released_at = after(minutes=30)
        assert accrued(session, job_id, after(minutes=50)) == half


def test_a_command_that_ended_before_its_first_measurement_has_accrued_nothing(
    migrated: Database, job_id: str
) -> None:
    with migrated.write() as session:
        job = session.get_one(tables.Job, job_id)
        for elapsed in ({}, {"elapsed_s": None}):
            job.workers = [{"index": 0, "exit": {"exit_code": 1}, **elapsed}]
            assert accrued(session, job_id, after(minutes=50)) == Accrued(0, 0)


def test_of_several_jobs_each_has_what_its_own_running_meters_cost(
    migrated: Database, job_id: str
) -> None:
    with migrated.write() as session:
        job = session.get_one(tables.Job, job_id)
        account = session.get_one(tables.Account, job.account_id)
        other = add_job(session, account)
        other.status, other.rates, other.workers = "running", job.rates, []
        other.attempt = 2
        session.flush()
        node = session.exec(select(tables.Node)).one()
        allocate(session, other, node, 1).released_at = after(minutes=12)
        for attempt in (1, 2):
            used = _usage(other.id, 0).model_copy(update={"attempt": attempt})
            post_worker_usage(session, used)
        session.flush()
        found = accrued_of(session, [job, other], after(minutes=30))
        assert found == {job_id: Accrued(RATE // 2, RATE), other.id: Accrued(RATE // 5, RATE)}
        assert list(accrued_of(session, [other], after(minutes=30))) == [other.id]
        assert microcredits_per_hour_of(session, account.id) == 2 * RATE
        meter = session.get_one(tables.UsageMeter, (job_id, 0, 1))
        meter.running = False
        session.flush()
        assert microcredits_per_hour_of(session, account.id) == RATE


def test_an_unreachable_job_keeps_its_rate_and_a_finished_one_has_none(
    migrated: Database, job_id: str
) -> None:
    with migrated.write() as session:
        job = session.get_one(tables.Job, job_id)
        for status, rate in (
            *(("running", RATE), ("unreachable", RATE), ("provisioning", RATE)),
            *(("waiting_for_data", RATE), ("finished", None)),
        ):
            job.status, job.updated_at = status, NOW
            assert accrued(session, job_id, NOW) == Accrued(0, rate), status
        for meter in session.exec(select(tables.UsageMeter)):
            session.delete(meter)
        job.status = "running"
        assert accrued(session, job_id, NOW) == Accrued(0, RATE), "its bill has not begun"
        job.rates = None
        assert accrued(session, job_id, NOW) == Accrued(0, None)


def test_a_placed_job_has_a_rate_before_it_runs_and_a_waiting_one_has_none(
    migrated: Database, job_id: str
) -> None:
    with migrated.write() as session:
        for meter in session.exec(select(tables.UsageMeter)):
            session.delete(meter)
        job = session.get_one(tables.Job, job_id)
        job.status = "provisioning"
        assert accrued(session, job_id, NOW) == Accrued(0, RATE)
        job.status = "waiting_for_resources"
        assert accrued(session, job_id, NOW) == Accrued(0, None)


def test_an_account_spends_what_its_running_jobs_cost(migrated: Database, job_id: str) -> None:
    with migrated.write() as session:
        account_id = session.get_one(tables.Job, job_id).account_id
        assert microcredits_per_hour_of(session, account_id) == RATE
        assert microcredits_per_hour_of(session, "acc-other") == 0
