"""The queue of placement over real databases: who is next, and what those are told who wait."""

from datetime import timedelta
from typing import Any

from sqlmodel import Session, col, select

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.record import record
from activities.placement.queue import PAGE, Queue, waiting_queue
from tests.activities.placement.rows import (
    add_gpu_node,
    add_waiting_job,
    copies,
    live,
    refusals,
    round_of,
    statements,
)
from tests.activities.rows import GIB, NOW, add_payer, add_region
from workflows.contracts.job_submission import SubmittedPlacement
from workflows.contracts.lifecycles import JobChanges, Record
from workflows.contracts.placement import PendingJob, PlanningRound


def read_jobs(session: Session) -> dict[str, PendingJob]:
    """All waiting jobs by id."""
    queue: Queue = waiting_queue(session, [])
    return {job.job_id: job for demand in queue.demands for job in demand.jobs}


def test_a_job_that_this_version_cannot_read_keeps_nobody_else_waiting(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, "n1", gpus=1)
        unreadable = add_waiting_job(session, account, created_at=NOW - timedelta(hours=1))
        unreadable.spec = {"unknown": "to this version"}
        job = add_waiting_job(session, account)
    assert round_of().placed == 1
    with migrated.read() as session:
        assert [held.job_id for held in live(session)] == [job.id]


def test_jobs_that_fit_nowhere_hide_no_job_of_another_account(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    greedy, home = place
    with migrated.write() as session:
        add_gpu_node(session, home, "greedy-1", gpus=2)
        big = add_waiting_job(session, greedy, gpus=8, priority=1)
        copies(session, big, 2_000)
        other = add_payer(session, "other")
        add_credits(session, other, 1, "other", NOW)
        add_gpu_node(session, add_region(session, other), "other-1", gpus=1)
        late: dict[str, Any] = {"created_at": NOW + timedelta(hours=1), "priority": 5}
        fits = add_waiting_job(session, other, gpus=1, **late)
        waits = add_waiting_job(session, other, gpus=3, **late)
        small = add_waiting_job(session, greedy, gpus=1, **late)
    assert round_of() == PlanningRound(placed=2, waiting=2_002, more=False)
    with migrated.read() as session:
        assert {held.job_id for held in live(session)} == {fits.id, small.id}
        last = session.exec(
            select(tables.Job)
            .where(col(tables.Job.id).like(f"{big.id}-%"))
            .order_by(col(tables.Job.id).desc())
        ).first()
    assert last is not None
    assert [code for code, _ in refusals(migrated, waits)] == ["gpu-count"]
    for one in (big, last):
        assert refusals(migrated, one) == [("gpu-count", "node greedy-1: asked 8×A100, has 2")]


def test_accounts_take_turns_whatever_the_priority_of_their_jobs(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    first, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, gpus=4)
        first_jobs = [add_waiting_job(session, first, gpus=1, priority=1) for _ in range(9)]
        second = add_payer(session, "second")
        add_credits(session, second, 1, "second", NOW)
        second_jobs = [add_waiting_job(session, second, gpus=1, priority=5) for _ in range(9)]
        add_gpu_node(session, add_region(session, second), "n2", gpus=4)
    assert round_of(limit=4) == PlanningRound(placed=4, waiting=14, more=True)
    with migrated.read() as session:
        placed = {held.job_id for held in live(session)}
    assert len(placed & {job.id for job in first_jobs}) == 2
    assert len(placed & {job.id for job in second_jobs}) == 2


def test_jobs_of_one_demand_are_placed_first_come_first_served_through_all_pages(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        for name, cpus in (("n1", PAGE), ("n2", PAGE + 10)):
            node = add_gpu_node(session, region, name, gpus=0, cpus=cpus)
            node.memory_bytes = 1000 * GIB
        job = add_waiting_job(session, account, gpus=0)
        copies(session, job, 3 * PAGE, later_s=1)
    placed = PAGE + 5
    assert round_of() == PlanningRound(placed=placed, waiting=2 * PAGE - 4, more=False)
    with migrated.read() as session:
        queue = [each.job_id for each in read_jobs(session).values()]
        assert queue == [f"{job.id}-{number:05}" for number in range(placed - 1, 3 * PAGE)]


def test_jobs_that_an_earlier_release_wrote_without_a_key_are_placed_by_their_demand(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, gpus=1)
        job = add_waiting_job(session, account, gpus=1)
        job.demand_key = job.waiting_since = None
        later = add_waiting_job(session, account, gpus=1)
        later.waiting_since = NOW + timedelta(seconds=1)
    assert round_of() == PlanningRound(placed=1, waiting=1, more=False)
    with migrated.read() as session:
        assert [held.job_id for held in live(session)] == [job.id]
        assert session.get_one(tables.Job, job.id).demand_key == later.demand_key


def test_a_round_that_changes_nothing_writes_nothing(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, gpus=1)
        job = add_waiting_job(session, account, gpus=8)
        copies(session, job, 20)
    with statements() as first:
        round_of()
    with statements() as second:
        round_of()
    written = [text for text in first if not text.startswith(("SELECT", "WITH", "BEGIN"))]
    assert len(written) <= 2  # once for the demand: not for each job
    assert {text.split()[0] for text in second} <= {"SELECT", "WITH", "BEGIN"}


def test_refusals_go_when_nobody_waits_with_the_demand(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, _ = place
    with migrated.write() as session:
        job = add_waiting_job(session, account)
    round_of()
    with migrated.write() as session:
        assert len(session.exec(select(tables.DemandRefusalsRow)).all()) == 1
        session.get_one(tables.Job, job.id).status = "canceled"
    round_of()
    with migrated.read() as session:
        assert session.exec(select(tables.DemandRefusalsRow)).all() == []


def test_a_service_that_is_started_again_queues_behind_those_who_waited_when_it_was(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        add_gpu_node(session, region, gpus=1)
        service = add_waiting_job(session, account, created_at=NOW - timedelta(days=1))
        first = add_waiting_job(session, account)
    waits = Record(
        resource_id=service.id,
        account_id=account.id,
        sequence=1,
        at=NOW + timedelta(minutes=1),
        status="waiting_for_resources",
        changes=JobChanges(attempt=2),
    )
    record(waits)
    with migrated.read() as session:
        queue = read_jobs(session)
    assert queue[service.id].waiting_since == NOW + timedelta(minutes=1)
    assert queue[first.id].waiting_since == NOW
    assert round_of().placed == 1
    with migrated.read() as session:
        assert [held.job_id for held in live(session)] == [first.id]


def test_a_project_of_owned_machines_alone_and_a_region_by_name_are_kept(
    migrated: Database, place: tuple[tables.Account, tables.Region]
) -> None:
    account, region = place
    with migrated.write() as session:
        project = session.get_one(tables.Project, account.personal_project_id)
        project.use_only_owned_resources = True
        add_waiting_job(session, account, placement=SubmittedPlacement(region_id=region.id))
    with migrated.read() as session:
        (job,) = read_jobs(session).values()
    asked = job.demand
    assert (asked.only_owned, asked.region_id) == (True, region.id)
