"""The singletons: what is missing is started, what differs is updated, what is over is deleted."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleState,
    WorkflowExecutionStatus,
)

from activities.settings import settings
from activities.temporal.singletons import RECONCILIATION, ensure_singletons, wanted_schedules
from tests.activities.temporal.stuck import TRIES, break_workflow
from tests.temporal_server import TemporalServer
from tests.waiting import eventually

LOOPS = ("placement", "outbox", "device-fees", "payouts", "balance-guard")


@pytest.fixture(scope="module")
async def temporal(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TemporalServer]:
    """A server whose schedules run: only such a one describes and updates them."""
    server = TemporalServer(tmp_path_factory.mktemp("schedules"), durable=False, schedules=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def temporal_server(temporal: TemporalServer) -> Client:
    """A client of a namespace for each test."""
    return await temporal.namespace()


async def listed(client: Client) -> set[str]:
    return {found.id async for found in await client.list_schedules()}


async def interval_of(client: Client, name: str) -> timedelta:
    found = await client.get_schedule_handle(name).describe()
    return found.schedule.spec.intervals[0].every


async def test_loops_and_schedules_that_are_missing_are_started_and_a_repeat_changes_nothing(
    temporal_server: Client, migrated: object
) -> None:
    await ensure_singletons(temporal_server)
    first = [await temporal_server.get_workflow_handle(name).describe() for name in LOOPS]
    await temporal_server.get_workflow_handle("outbox").terminate("in the UI")

    async def all_listed() -> bool:
        return await listed(temporal_server) == set(wanted_schedules())

    await eventually(all_listed, "all schedules are listed")
    await ensure_singletons(temporal_server)
    again = [await temporal_server.get_workflow_handle(name).describe() for name in LOOPS]
    assert {one.status for one in again} == {WorkflowExecutionStatus.RUNNING}
    is_same = [one.run_id == other.run_id for one, other in zip(first, again, strict=True)]
    assert is_same == [name != "outbox" for name in LOOPS]


async def test_a_loop_that_is_stuck_is_started_anew_and_no_other(
    temporal_server: Client, migrated: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("activities.temporal.stuck_workflows.STUCK_ATTEMPTS", TRIES)
    await temporal_server.start_workflow("Placement", id="placement", task_queue="broken")
    await ensure_singletons(temporal_server)
    first = [await temporal_server.get_workflow_handle(name).describe() for name in LOOPS]
    await break_workflow(temporal_server, "placement", "broken")
    await ensure_singletons(temporal_server)
    again = [await temporal_server.get_workflow_handle(name).describe() for name in LOOPS]
    assert {one.status for one in again} == {WorkflowExecutionStatus.RUNNING}
    is_same = [one.run_id == other.run_id for one, other in zip(first, again, strict=True)]
    assert is_same == [name != "placement" for name in LOOPS]


async def test_schedules_that_differ_are_updated_and_former_ones_of_ours_are_deleted(
    temporal_server: Client, migrated: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_singletons(temporal_server)
    for name, note in (("former", "baseload: Former every 60 s"), ("somebody", "not ours")):
        action = ScheduleActionStartWorkflow("Former", id=name, task_queue="nobody")
        spec = ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(days=1))])
        state = ScheduleState(note=note)
        await temporal_server.create_schedule(name, Schedule(action=action, spec=spec, state=state))
    await temporal_server.get_schedule_handle("prices").pause(note="paused by a person")
    monkeypatch.setenv("BASELOAD_RECONCILIATION_INTERVAL_S", "77")
    settings.cache_clear()

    async def all_updated() -> bool:
        await ensure_singletons(temporal_server)
        return await listed(temporal_server) == {*wanted_schedules(), "somebody"}

    await eventually(all_updated, "the former schedule is deleted")
    assert await interval_of(temporal_server, RECONCILIATION) == timedelta(seconds=77)
    prices = await temporal_server.get_schedule_handle("prices").describe()
    assert prices.schedule.state.paused
