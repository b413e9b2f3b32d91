"""Telling jobs that they have a place, through a real Temporal server."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlmodel import select
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.placement.planning import find_placement, notify_placed_jobs, plan_placements
from activities.placement.refusals import refusals_of_jobs
from activities.temporal import client as temporal
from activities.temporal.client import set_client, tell
from tests.activities.placement.rows import add_gpu_node, add_waiting_job, assert_books_agree, live
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.jobs import Placement
from workflows.effects.jobs import FindPlacement
from workflows.effects.placement import NotifyPlacedJobs, PlacedJobsNotified, PlanPlacements


@pytest.fixture
def told_by(temporal_server: Client) -> Iterator[Client]:
    set_client(temporal_server)
    yield temporal_server
    temporal._client = temporal._loop = None


def placed_job(migrated: Database, workers: int = 1) -> str:
    """The id of a job that has a place and has not been told."""
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 1, "first", NOW)
        region = add_region(session, account)
        region.node_root = "/srv/baseload"
        add_gpu_node(session, region)
        job = add_waiting_job(session, account, workers=workers)
    assert plan_placements(PlanPlacements()).placed == 1
    return job.id


async def waiting_workflow(client: Client, job_id: str) -> WorkflowHandle[object, object]:
    """The job's workflow, which no worker serves: what it is told stays in its history."""
    return await client.start_workflow(
        "JobLifecycle", id=f"job/{job_id}", task_queue=f"nobody-{uuid4()}"
    )


async def signals(client: Client, handle: WorkflowHandle[object, object]) -> list[Placement]:
    found = []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            told = event.workflow_execution_signaled_event_attributes
            assert told.signal_name == "placed"
            found += await client.data_converter.decode(told.input.payloads, [Placement])
    return found


async def test_a_placed_job_is_told_once_with_all_that_it_needs(
    migrated: Database, told_by: Client
) -> None:
    job_id = placed_job(migrated, workers=2)
    handle = await waiting_workflow(told_by, job_id)
    assert await notify_placed_jobs(NotifyPlacedJobs()) == PlacedJobsNotified(announced=1)
    assert await notify_placed_jobs(NotifyPlacedJobs()) == PlacedJobsNotified(announced=0)
    (placement,) = await signals(told_by, handle)
    assert placement == find_placement(FindPlacement(job_id=job_id, attempt=1)).placement
    first, second = placement.assignments
    with migrated.read() as session:
        node = session.exec(select(tables.Node)).one()
    assert (first.worker, second.worker) == (0, 1)
    assert (first.gpu_uuids, second.gpu_uuids) == (("GPU-n1-0",), ("GPU-n1-1",))
    assert first.node.model_dump() == {
        "node_id": node.id,
        "region_id": node.region_id,
        "host": "127.0.0.1",
        "port": 22,
        "user": "root",
        "minion_id": node.minion_id,
        "root": "/srv/baseload",
        "own_worker": False,
        "leased": False,
        "has_own_key": False,
        "is_stated": False,
    }
    await handle.terminate()


async def test_a_job_that_has_ended_gives_its_allocations_back_for_good(
    migrated: Database, told_by: Client
) -> None:
    job_id = placed_job(migrated)
    handle = await waiting_workflow(told_by, job_id)
    await handle.terminate()
    with migrated.write() as session:
        session.get_one(tables.Job, job_id).status = "canceled"
    assert (await notify_placed_jobs(NotifyPlacedJobs())).announced == 0
    with migrated.read() as session:
        assert live(session) == []
        assert_books_agree(session)
    assert plan_placements(PlanPlacements()).placed == 0


async def test_a_job_whose_workflow_is_lost_keeps_its_allocations_until_it_is_restarted(
    migrated: Database, told_by: Client
) -> None:
    job_id = placed_job(migrated)
    lost = PlacedJobsNotified(announced=0, untold=(job_id,))
    assert await notify_placed_jobs(NotifyPlacedJobs()) == lost
    handle = await waiting_workflow(told_by, job_id)
    assert (await notify_placed_jobs(NotifyPlacedJobs())).announced == 1
    assert len(await signals(told_by, handle)) == 1
    await handle.terminate()


async def test_a_job_that_cannot_be_told_keeps_its_place_and_keeps_nobody_else_from_theirs(
    migrated: Database, told_by: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 1, "first", NOW)
        add_gpu_node(session, add_region(session, account))
        deaf_id, job_id = (add_waiting_job(session, account).id for _ in range(2))
    assert plan_placements(PlanPlacements()).placed == 2
    feed_error = await waiting_workflow(told_by, deaf_id)
    handle = await waiting_workflow(told_by, job_id)

    async def lost(workflow_id: str, signal: str, placement: Placement) -> bool:
        if placement.job_id == deaf_id:
            raise ApplicationError("no answer")
        return await tell(workflow_id, signal, placement)

    with monkeypatch.context() as broken:
        broken.setattr("activities.placement.planning.tell", lost)
        answer = await notify_placed_jobs(NotifyPlacedJobs(limit=2))
    assert answer == PlacedJobsNotified(announced=1, more=True, untold=(deaf_id,))
    assert len(await signals(told_by, handle)) == 1
    assert await signals(told_by, feed_error) == []
    assert (await notify_placed_jobs(NotifyPlacedJobs())).announced == 1
    assert len(await signals(told_by, feed_error)) == 1
    for told in (feed_error, handle):
        await told.terminate()


async def test_a_job_whose_workflow_is_lost_keeps_its_place_until_it_is_adopted(
    migrated: Database, told_by: Client
) -> None:
    job_id = placed_job(migrated)
    found = await notify_placed_jobs(NotifyPlacedJobs())
    assert (found.announced, found.untold) == (0, (job_id,))
    with migrated.read() as session:
        assert [allocation.job_id for allocation in live(session)] == [job_id]
    await waiting_workflow(told_by, job_id)
    assert (await notify_placed_jobs(NotifyPlacedJobs())).announced == 1


async def test_waiting_jobs_show_that_no_process_plans_until_one_does(
    migrated: Database, told_by: Client
) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 1, "first", NOW)
        region = add_region(session, account)
        job = add_waiting_job(session, account)
    await notify_placed_jobs(NotifyPlacedJobs(has_no_planner=True))

    def shown() -> list[str]:
        with migrated.read() as session:
            found = refusals_of_jobs(session, [session.get_one(tables.Job, job.id)])[job.id]
        return [refusal["code"] for refusal in found]

    assert shown() == ["no-planner"]
    plan_placements(PlanPlacements())
    await notify_placed_jobs(NotifyPlacedJobs(refused_before=NOW))
    assert shown() == ["no-offers"]
    with migrated.write() as session:
        add_gpu_node(session, session.get_one(tables.Region, region.id))
    assert plan_placements(PlanPlacements()).placed == 1
    assert shown() == []
