"""The usage of one run: how far its meter moves, who pays, and what its rows say afterwards."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event
from sqlmodel import Session, col, select
from temporalio.exceptions import ApplicationError

from activities.billing import usage as module
from activities.billing.ledger import USAGE_FEES, balance_of
from activities.billing.usage import (
    MOST_PERIODS,
    SPARE_S,
    Posted,
    is_over,
    open_meter,
    payer_of_job,
    post_worker_usage,
)
from activities.db import tables
from activities.db.session import Database
from activities.settings import settings
from tests.activities.rows import NOW, add_job, add_node, add_payer, add_region, allocate
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.events import JobEvent
from workflows.rules.billing.usage_fees import usage_rates

HOUR = 2 * 250_000
"""What an hour of two A100 costs, in microcredits."""
RATES = usage_rates("A100", 2, 2, NOW, cpu_core_hour=0).model_dump(mode="json")
DEAR = usage_rates("A100", 4, 2, NOW, cpu_core_hour=0).model_dump(mode="json")


@pytest.fixture
def job(migrated: Database) -> tables.Job:
    """A job that runs since NOW with two A100 on one node."""
    with migrated.write() as session:
        account = add_payer(session)
        job = add_job(session, account)
        job.status, job.rates = "running", {"0": RATES, "1": DEAR}
        allocate(session, job, add_node(session, add_region(session, account)), 0)
        return job


def of(job: tables.Job, through_s: int, *, worker: int = 0, attempt: int = 1) -> WorkerUsage:
    return WorkerUsage(
        job_id=job.id, worker=worker, attempt=attempt, started_at=NOW, through_s=through_s
    )


def released(session: Session, job: tables.Job, after_s: int) -> None:
    for held in session.exec(select(tables.Allocation)):
        held.released_at = NOW + timedelta(seconds=after_s)
    session.flush()


def refusals(session: Session) -> list[tables.EventRow]:
    of_type = col(tables.EventRow.type) == JobEvent.USAGE_REFUSED
    found = session.exec(select(tables.EventRow).where(of_type))
    return sorted(found, key=lambda row: (row.sequence, row.index))


def test_a_posting_says_what_the_run_was(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        post_worker_usage(session, of(job, 60))
        assert post_worker_usage(session, of(job, 90)) == Posted(HOUR * 30 // 3600 + 1)
        first, second = session.exec(
            select(tables.LedgerTransaction).order_by(col(tables.LedgerTransaction.at))
        )
        assert second.business_key == f"job/{job.id}/usage/0/2026-03-01T12:01:00+00:00"
        assert second.kind == "usage-fee"
        assert second.job_id == job.id
        assert second.account_id == job.account_id
        assert (first.at, second.at) == (
            NOW + timedelta(seconds=60),
            NOW + timedelta(seconds=90),
        )
        assert second.description == "worker 0: 30 s from 2026-03-01 12:01:00 UTC"
        assert second.details == {
            "worker": 0, "attempt": 1, "from_s": 60, "through_s": 90, "rates": RATES,
        }  # fmt: skip


def test_postings_say_which_project_provider_and_region_they_are_about(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        post_worker_usage(session, of(job, 2 * 3600 + 1))
        post_worker_usage(session, of(job, 60, worker=1))
    with migrated.read() as session:
        region = session.exec(select(tables.Region)).one()
        rows = session.exec(select(tables.LedgerTransaction)).all()
    placed = {
        (row.project_id, row.provider_id, row.region_id)
        for row in rows
        if row.details["worker"] == 0
    }
    unplaced = {
        (row.project_id, row.provider_id, row.region_id)
        for row in rows
        if row.details["worker"] == 1
    }
    assert len(rows) == 4
    assert placed == {(job.project_id, region.provider_id, region.id)}
    assert unplaced == {(job.project_id, None, None)}, "it never had an allocation"


def test_a_posting_of_many_slices_asks_once_what_they_are_about(
    migrated: Database, job: tables.Job
) -> None:
    def asked(through_s: int) -> int:
        seen: list[str] = []

        def note(_c: object, _u: object, statement: str, *_: object) -> None:
            seen.append(statement)

        with migrated.write() as session:
            event.listen(session.get_bind(), "before_cursor_execute", note)
            post_worker_usage(session, of(job, through_s))
            event.remove(session.get_bind(), "before_cursor_execute", note)
        return sum("FROM regions" in statement for statement in seen)

    assert [asked(3600), asked(20 * 3600)] == [1, 1]


def test_a_posting_moves_the_meter_the_job_and_the_ledger_alike(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        other = add_job(session, session.get_one(tables.Account, job.account_id))
        for through_s in (1800, 3600):
            assert post_worker_usage(session, of(job, through_s)).microcredits == HOUR // 2
    with migrated.read() as session:
        row, meter = session.get_one(tables.Job, job.id), session.exec(select(tables.UsageMeter))
        (one,) = meter
        assert (one.posted_s, one.posted_microcredits) == (3600, HOUR)
        assert (row.charged_microcredits, row.gpu_seconds) == (HOUR, 2 * 3600)
        assert session.get_one(tables.Job, other.id).charged_microcredits == 0
        assert balance_of(session, f"account/{job.account_id}/credits") == -HOUR
        assert balance_of(session, USAGE_FEES) == HOUR


@pytest.mark.parametrize("through_s", [100, 99, 1, 0])
def test_what_is_posted_already_is_not_posted_again(
    migrated: Database, job: tables.Job, through_s: int
) -> None:
    with migrated.write() as session:
        post_worker_usage(session, of(job, 100))
        assert post_worker_usage(session, of(job, through_s)) == Posted(0, is_all=True)
        assert len(session.exec(select(tables.LedgerTransaction)).all()) == 1
        assert session.exec(select(tables.UsageMeter)).one().posted_s == 100


def test_one_transaction_posts_up_to_the_end_of_a_period_and_says_that_there_is_more(
    migrated: Database, job: tables.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_PERIODS == 500, "about a second"
    monkeypatch.setattr(module, "MOST_PERIODS", 2)
    period_s = settings().billing_period_s
    with migrated.write() as session:
        post_worker_usage(session, of(job, period_s // 2))
        meter = session.exec(select(tables.UsageMeter)).one()
        assert not post_worker_usage(session, of(job, 5 * period_s)).is_all
        assert meter.posted_s == 2 * period_s
        assert not post_worker_usage(session, of(job, 5 * period_s)).is_all
        assert meter.posted_s == 4 * period_s
        assert post_worker_usage(session, of(job, 5 * period_s)).is_all
        assert meter.posted_s == 5 * period_s
        keys = [row.business_key for row in session.exec(select(tables.LedgerTransaction))]
        assert len(keys) == len(set(keys)) == 6


def test_a_run_is_charged_for_its_allocation_and_a_minute_of_clocks(
    migrated: Database, job: tables.Job
) -> None:
    assert SPARE_S == 60
    with migrated.write() as session:
        released(session, job, 1000)
        post_worker_usage(session, of(job, 1060))
        assert refusals(session) == []
        assert post_worker_usage(session, of(job, 1061)) == Posted()
        (event,) = refusals(session)
        assert session.exec(select(tables.UsageMeter)).one().posted_s == 1060
    assert event.details == {"worker": 0, "measured_s": 1061, "charged_s": 1060}
    assert "has measured 1061 s" in event.message
    assert "only 1060 s are charged" in event.message
    assert (event.account_id, event.resource_id) == (job.account_id, job.id)
    assert datetime.now(UTC) - event.at < timedelta(minutes=5)


def test_a_refusal_is_recorded_once_for_each_step_of_the_job_after_its_other_events(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        released(session, job, 1000)
        for through_s in (5000, 6000):
            post_worker_usage(session, of(job, through_s))
        row = session.get_one(tables.Job, job.id)
        row.sequence += 1
        session.add(
            tables.EventRow(
                id="evt-1", account_id=job.account_id, resource_id=job.id, at=NOW,
                sequence=row.sequence, index=3, type=JobEvent.RUNNING, message="", details={},
            )
        )  # fmt: skip
        session.flush()
        post_worker_usage(session, of(job, 7000))
        assert [(each.sequence, each.index) for each in refusals(session)] == [
            (job.sequence, 0),
            (job.sequence + 1, 4),
        ]


def test_a_refusal_of_another_job_does_not_stand_for_this_ones(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        other = add_job(session, session.get_one(tables.Account, job.account_id))
        other.status, other.rates, other.created_at = "running", {"0": RATES}, datetime.now(UTC)
        session.flush()
        released(session, job, 1000)
        post_worker_usage(session, of(job, 5000))
        post_worker_usage(session, of(other, 10**6))
        assert {row.resource_id for row in refusals(session)} == {job.id, other.id}


def test_allocations_and_events_of_other_jobs_say_nothing_of_this_one(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        released(session, job, 100)
        node = session.exec(select(tables.Node)).one()
        other = add_job(session, session.get_one(tables.Account, job.account_id))
        other.status, other.rates = "running", {"0": DEAR}
        allocate(session, other, node, 1).released_at = NOW + timedelta(seconds=500)
        session.add(
            tables.EventRow(
                id="evt-1", account_id=job.account_id, resource_id=other.id, at=NOW,
                sequence=job.sequence, index=7, type=JobEvent.RUNNING, message="", details={},
            )
        )  # fmt: skip
        session.flush()
        for row, believed_s in ((other, 560), (job, 160)):
            post_worker_usage(session, of(row, 5000))
            assert session.get_one(tables.UsageMeter, (row.id, 0, 1)).posted_s == believed_s
        assert {row.resource_id: row.index for row in refusals(session)} == {job.id: 0, other.id: 8}


def test_a_run_that_costs_nothing_moves_its_meter_alone(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        session.get_one(tables.Job, job.id).rates = {}
        session.flush()
        assert post_worker_usage(session, of(job, 7200)) == Posted(0, is_all=True)
        meter = session.exec(select(tables.UsageMeter)).one()
        assert (meter.posted_s, meter.posted_microcredits) == (7200, 0)
        assert session.exec(select(tables.LedgerTransaction)).all() == []


def test_a_run_without_an_allocation_may_last_since_its_job_was_made(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        row = session.get_one(tables.Job, job.id)
        row.created_at = datetime.now(UTC) - timedelta(seconds=1000)
        session.flush()
        post_worker_usage(session, of(job, 5000, worker=1))
        meter = session.get_one(tables.UsageMeter, (job.id, 1, 1))
        assert 1000 + SPARE_S <= meter.posted_s < 1300 + SPARE_S
        assert meter.microcredits_per_hour == 2 * HOUR


def test_an_allocation_in_the_future_charges_no_more_than_the_minute(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        released(session, job, -500)
        post_worker_usage(session, of(job, 5000))
        assert session.exec(select(tables.UsageMeter)).one().posted_s == SPARE_S


def test_each_worker_and_attempt_is_measured_by_its_own_allocation(
    migrated: Database, job: tables.Job
) -> None:
    with migrated.write() as session:
        (first,) = session.exec(select(tables.Allocation))
        first.rates = RATES
        node = session.get_one(tables.Node, first.node_id)
        row = session.get_one(tables.Job, job.id)
        row.attempt = 2
        second = allocate(session, row, node, 1)
        second.rates, second.released_at = DEAR, NOW + timedelta(seconds=100)
        third = allocate_worker(session, row, node)
        first.released_at, third.released_at = NOW + timedelta(seconds=10), NOW
        row.rates = {"0": usage_rates("A100", 8, 2, NOW, cpu_core_hour=0).model_dump(mode="json")}
        session.flush()
        for worker, attempt in ((0, 1), (0, 2), (1, 2)):
            used = of(job, 10**6, worker=worker, attempt=attempt)
            began = {"started_at": NOW + timedelta(hours=attempt)}
            post_worker_usage(session, used.model_copy(update=began))
        found = {
            (meter.worker, meter.attempt): (meter.posted_s, meter.microcredits_per_hour)
            for meter in session.exec(select(tables.UsageMeter))
        }
        assert found == {(0, 1): (70, HOUR), (0, 2): (160, 2 * HOUR), (1, 2): (60, 0)}


def allocate_worker(session: Session, job: tables.Job, node: tables.Node) -> tables.Allocation:
    """The allocation of worker 1, by an earlier release: without rates."""
    held = tables.Allocation(
        id="alc-1", job_id=job.id, worker=1, attempt=job.attempt, node_id=node.id,
        cpu_count=1, memory_bytes=1, gpu_indices=[], created_at=NOW,
    )  # fmt: skip
    session.add(held)
    session.flush()
    return held


@pytest.mark.parametrize(
    ("status", "attempt", "runs"),
    [
        *(("running", 1, True), ("unreachable", 1, True), ("provisioning", 1, True)),
        *(("running", 2, False), ("stopped", 1, False), ("removing", 1, False)),
        *(("finished", 1, False), ("failed", 1, False), ("canceled", 1, False)),
    ],
)
def test_a_meter_runs_while_the_row_says_that_its_attempt_runs(
    migrated: Database, job: tables.Job, status: str, attempt: int, runs: bool
) -> None:
    with migrated.write() as session:
        session.get_one(tables.Job, job.id).status = status
        session.flush()
        meter, is_new = open_meter(session, of(job, 0, attempt=attempt))
        assert (meter.running, is_new) == (runs, True)
        assert is_over(session, of(job, 0, attempt=attempt)) is not runs
        again, is_new = open_meter(session, of(job, 0, attempt=attempt))
        assert (again.started_at, is_new) == (NOW, False)


def test_a_job_that_is_not_there_is_not_over_and_posts_nothing(
    migrated: Database, job: tables.Job
) -> None:
    gone = of(job, 60).model_copy(update={"job_id": "job-gone"})
    with migrated.write() as session:
        assert not is_over(session, gone)
        with pytest.raises(ApplicationError, match="job-gone, found no such job") as refused:
            post_worker_usage(session, gone)
        assert (refused.value.type, refused.value.non_retryable) == ("NotFound", True)
        with pytest.raises(ApplicationError, match="job-gone"):
            payer_of_job(session, "job-gone")


def test_the_owner_of_the_jobs_own_project_pays(migrated: Database, job: tables.Job) -> None:
    with migrated.write() as session:
        other = add_payer(session, "other")
        theirs = add_job(session, other)
        assert payer_of_job(session, job.id) == job.account_id
        assert payer_of_job(session, theirs.id) == other.id
        owner = session.get_one(tables.Account, job.account_id)
        owner.billing_account_id = other.id
        session.flush()
        assert payer_of_job(session, job.id) == other.id
