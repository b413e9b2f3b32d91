"""What a usage meter keeps of measurements, beside what it posts."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import Session, select

from activities.billing.orphaned_runs import bill_orphaned_runs
from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.session import Database
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import UsageRates, WorkerUsage
from workflows.contracts.nodes import RunSeen
from workflows.effects.nodes import BillOrphanedRuns

RATES = UsageRates(gpu_count=1, microcredits_per_gpu_hour=250_000)
WRONG = datetime(1980, 1, 1, tzinfo=UTC)


@pytest.fixture
def job(migrated: Database) -> tables.Job:
    with migrated.write() as session:
        account = add_payer(session)
        job = add_job(session, account)
        job.status, job.rates = "running", {"0": RATES.model_dump(mode="json")}
        allocate(session, job, add_node(session, add_region(session, account)), 0)
    return job


def _usage(job: tables.Job, through_s: int, **said: datetime) -> WorkerUsage:
    return WorkerUsage(
        job_id=job.id, worker=0, attempt=1, started_at=NOW, through_s=through_s,
        node_started_at=said.get("began"), node_ended_at=said.get("ended"),
    )  # fmt: skip


def _meter(session: Session) -> tables.UsageMeter:
    return session.exec(select(tables.UsageMeter)).one()


def test_a_meter_keeps_what_the_node_has_said_first(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        post_worker_usage(session, _usage(job, 0))
        assert _meter(session).measured_s is None
    with migrated.write() as session:
        post_worker_usage(session, _usage(job, 60, began=WRONG))
    with migrated.write() as session:
        post_worker_usage(session, _usage(job, 90, began=NOW, ended=WRONG + timedelta(minutes=9)))
        post_worker_usage(session, _usage(job, 80, ended=NOW))
    with migrated.read() as session:
        meter = _meter(session)
    assert (meter.posted_s, meter.measured_s) == (90, 90)
    assert meter.node_started_at == WRONG
    assert meter.node_ended_at == WRONG + timedelta(minutes=9)
    assert meter.measured_at is not None


def test_seconds_that_are_refused_stay_as_measured(migrated: Database, job: tables.Job) -> None:
    """The allocation of the test's world began at NOW, which lies years before the measurement."""
    with migrated.write() as session:
        allocation = session.exec(select(tables.Allocation)).one()
        allocation.released_at = allocation.created_at + timedelta(seconds=100)
        session.add(allocation)
    with migrated.write() as session:
        post_worker_usage(session, _usage(job, 5000))
    with migrated.read() as session:
        meter = _meter(session)
    assert (meter.posted_s, meter.measured_s) == (160, 5000)


def test_an_orphaned_run_keeps_both_clocks(migrated: Database, job: tables.Job) -> None:
    with migrated.read() as session:
        [node_id] = session.exec(select(tables.Allocation.node_id))
    ended_at = WRONG + timedelta(seconds=70)
    run = RunSeen(
        run_id=f"{job.id}-0-1", job_id=job.id, worker=0, attempt=1, elapsed_s=60.5,
        started_at=WRONG, finished_at=ended_at,
    )  # fmt: skip
    bill_orphaned_runs(BillOrphanedRuns(node_id=node_id, runs=(run,)))
    with migrated.read() as session:
        meter = _meter(session)
    assert (meter.measured_s, meter.node_started_at, meter.node_ended_at) == (60, WRONG, ended_at)
    assert meter.started_at >= NOW
