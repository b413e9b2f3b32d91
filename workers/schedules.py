"""The workflows that exist once in an installation: endless loops and scheduled workflows."""

import contextlib
from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
)
from temporalio.common import WorkflowIDConflictPolicy

from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.placement import PlacementRequest
from workflows.contracts.schedules import ReconciliationRequest

RECONCILIATION_INTERVAL = timedelta(minutes=5)
PRICES_INTERVAL = timedelta(days=1)
HOUSEKEEPING_INTERVAL = timedelta(hours=1)


async def start_singletons(client: Client) -> None:
    """Start placement, the outbox relay and the schedules; a second call finds the first ones."""
    loops: tuple[tuple[str, Contract, str], ...] = (
        ("Placement", PlacementRequest(), "placement"),
        ("OutboxRelay", ReconciliationRequest(), "outbox"),
    )
    for workflow, argument, name in loops:
        await client.start_workflow(
            workflow,
            argument,
            id=name,
            task_queue=queues.MAIN,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"the one {name} loop",
        )
    schedules = (
        ("LifecycleReconciliation", "lifecycle-reconciliation", RECONCILIATION_INTERVAL),
        ("PriceRefresh", "prices", PRICES_INTERVAL),
        ("Housekeeping", "housekeeping", HOUSEKEEPING_INTERVAL),
    )
    for scheduled, name, every in schedules:
        with contextlib.suppress(ScheduleAlreadyRunningError):
            await client.create_schedule(
                name,
                Schedule(
                    action=ScheduleActionStartWorkflow(
                        scheduled, ReconciliationRequest(), id=name, task_queue=queues.MAIN
                    ),
                    spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)]),
                    policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),
                ),
            )
