"""Lost and stale workflows: what Temporal knows of the workflow of a row, and who ended it."""

import asyncio
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHistoryEventFilterType,
)
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.temporal.client import client, limited
from activities.temporal.stuck_workflows import is_stuck
from workflows.contracts.lifecycles import workflow_id_of

CALLS_AT_ONCE = 32
HISTORY_SERVICE = "history-service"
"""Temporal's own identity, as which it terminates a workflow at the limit of its history."""
_STATUS = SearchAttributeKey.for_keyword("ResourceStatus")


@dataclass(frozen=True)
class Known:
    """What Temporal knows of a workflow."""

    runs: bool
    status: str | None = None
    """The status of its resource, as the workflow run shows it; None: it shows none."""
    ended_by_person: bool = False
    """Whether a person has terminated or cancelled it; else it is only lost."""

    is_stuck: bool = False
    """Whether its workflow task fails again and again; a listing of workflows does not tell."""

    def is_stale(self, row_status: str) -> bool:
        """Whether the workflow runs and is stuck, or does not know what its row says."""
        return self.runs and (self.is_stuck or self.status not in (None, row_status))


async def running_workflows(temporal: Client) -> dict[str, Known]:
    """All running workflows by id; visibility may be seconds behind."""
    query = "ExecutionStatus = 'Running'"
    listed = temporal.list_workflows(query, page_size=1000)
    return {found.id: Known(runs=True, status=_status_of(found)) async for found in listed}


async def describe(workflow_id: str) -> Known:
    """What Temporal knows of a workflow at this moment.

    Raises: RPCError, ApplicationError, both to be retried, when Temporal does not answer.
    """
    handle = client().get_workflow_handle(workflow_id)
    try:
        found: WorkflowExecutionDescription = await limited(
            handle.describe(), f"{workflow_id}: describe"
        )
    except RPCError as cause:
        if cause.status is RPCStatusCode.NOT_FOUND:
            return Known(runs=False)
        raise
    if found.status is WorkflowExecutionStatus.RUNNING:
        return Known(runs=True, status=_status_of(found), is_stuck=is_stuck(found))
    if found.status is WorkflowExecutionStatus.CANCELED:
        return Known(runs=False, ended_by_person=True)
    if found.status is WorkflowExecutionStatus.TERMINATED:
        by = await limited(_terminated_by(workflow_id, found.run_id), f"{workflow_id}: history")
        return Known(runs=False, ended_by_person=by != HISTORY_SERVICE)
    return Known(runs=False)


async def known_of(resource_id: str) -> Known | None:
    """What Temporal knows of a row's workflow; None: it has not answered."""
    async with slots():
        try:
            return await describe(workflow_id_of(resource_id))
        except (RPCError, ApplicationError) as cause:
            # The next reconciliation, minutes later, tries this one again.
            activity.logger.warning("%s was not compared: %s", resource_id, cause)
            return None


async def _terminated_by(workflow_id: str, run_id: str) -> str:
    """The identity that has terminated a workflow run."""
    events = (
        client()
        .get_workflow_handle(workflow_id, run_id=run_id)
        .fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT)
    )
    async for event in events:
        return str(event.workflow_execution_terminated_event_attributes.identity)
    return ""


def _status_of(found: WorkflowExecution) -> str | None:
    return found.typed_search_attributes.get(_STATUS)


_all_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def slots() -> asyncio.Semaphore:
    """The limit of concurrent calls to Temporal on this event loop."""
    return _all_slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(CALLS_AT_ONCE))
