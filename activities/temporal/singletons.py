"""The workflows that exist once in an installation: endless loops and scheduled workflows."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.common import WorkflowIDConflictPolicy

from activities.settings import settings
from activities.temporal.stuck_workflows import terminate_if_stuck
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.placement import PlacementRequest
from workflows.contracts.schedules import (
    BalanceGuardRequest,
    DeviceFeesRequest,
    PayoutsRequest,
    ReconciliationRequest,
)

PRICES_INTERVAL = timedelta(days=1)
OFFERS_INTERVAL = timedelta(minutes=5)
HOUSEKEEPING_INTERVAL = timedelta(hours=1)
RECONCILIATION = "lifecycle-reconciliation"
LOOPS: tuple[tuple[str, Contract, str], ...] = (
    ("Placement", PlacementRequest(), "placement"),
    ("OutboxRelay", ReconciliationRequest(), "outbox"),
)
"""The endless loops: workflow, argument, and id."""
DAILY_LOOPS: tuple[tuple[str, Contract, str], ...] = (
    ("DeviceFees", DeviceFeesRequest(), "device-fees"),
    ("Payouts", PayoutsRequest(), "payouts"),
    ("BalanceGuard", BalanceGuardRequest(), "balance-guard"),
)
"""The endless loops about money that is charged or paid by the UTC day."""
_OURS = "baseload: "
"""The beginning of the note of each schedule that this code has made."""

log = structlog.get_logger("temporal")


@dataclass(frozen=True)
class Scheduled:
    """One schedule: the workflow that it starts, and how often."""

    workflow: str
    every: timedelta

    @property
    def note(self) -> str:
        """What the schedule does; another note says that the schedule is out of date."""
        return f"{_OURS}{self.workflow} every {self.every.total_seconds():g} s"


def wanted_schedules() -> dict[str, Scheduled]:
    """The schedules of an installation by id."""
    every = timedelta(seconds=settings().reconciliation_interval_s)
    return {
        RECONCILIATION: Scheduled("LifecycleReconciliation", every),
        "prices": Scheduled("PriceRefresh", PRICES_INTERVAL),
        "offers": Scheduled("OfferRefresh", OFFERS_INTERVAL),
        "housekeeping": Scheduled("Housekeeping", HOUSEKEEPING_INTERVAL),
    }


async def ensure_singletons(client: Client) -> None:
    """Start the loops and make the schedules that are missing; update schedules that differ.

    Schedules that an earlier release has made and that are not wanted any more are deleted. A
    schedule that a person has paused stays paused. A new lifecycle reconciliation runs at once,
    because Temporal may have lost the workflows as well. What is stuck is terminated before: a loop
    is started anew, and a schedule starts its next workflow.
    """
    wanted = wanted_schedules()
    await _terminate_stuck(client, wanted)
    await _ensure_loops(client)
    notes = {
        found.id: found.schedule.state.note or ""
        async for found in await client.list_schedules()
        if found.schedule is not None
    }
    for name, schedule in wanted.items():
        if name not in notes:
            await _create(client, name, schedule)
        elif notes[name] != schedule.note:
            await _update(client, name, schedule)
    await _delete_unwanted(client, notes, wanted)


async def _terminate_stuck(client: Client, schedules: Iterable[str]) -> None:
    """Terminate the loops and the scheduled workflows that are stuck."""
    ids = [name for _, _, name in (*LOOPS, *DAILY_LOOPS)]
    for schedule in schedules:
        query = f"TemporalScheduledById = '{schedule}' AND ExecutionStatus = 'Running'"
        ids += [found.id async for found in client.list_workflows(query)]
    for workflow_id in ids:
        if await terminate_if_stuck(client, workflow_id):
            log.warning("terminated a stuck workflow", workflow=workflow_id)


async def _ensure_loops(client: Client) -> None:
    for workflow, argument, name in (*LOOPS, *DAILY_LOOPS):
        await client.start_workflow(
            workflow,
            argument,
            id=name,
            task_queue=queues.MAIN,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"the one {name} loop",
        )


async def _create(client: Client, name: str, schedule: Scheduled) -> None:
    with contextlib.suppress(ScheduleAlreadyRunningError):
        await client.create_schedule(
            name, _schedule(name, schedule), trigger_immediately=name == RECONCILIATION
        )


async def _update(client: Client, name: str, schedule: Scheduled) -> None:
    def changed(found: ScheduleUpdateInput) -> ScheduleUpdate:
        state = replace(found.description.schedule.state, note=schedule.note)
        return ScheduleUpdate(schedule=replace(_schedule(name, schedule), state=state))

    log.info("updates a schedule", schedule=name, now=schedule.note)
    await client.get_schedule_handle(name).update(changed)


async def _delete_unwanted(
    client: Client, notes: Mapping[str, str], wanted: Mapping[str, Scheduled]
) -> None:
    for name, note in notes.items():
        if name not in wanted and note.startswith(_OURS):
            log.info("deletes a schedule", schedule=name, was=note)
            await client.get_schedule_handle(name).delete()


def _schedule(name: str, schedule: Scheduled) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            schedule.workflow, ReconciliationRequest(), id=name, task_queue=queues.MAIN
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=schedule.every)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),
        state=ScheduleState(note=schedule.note),
    )
