"""The jobs that hold allocations on a node, and notifying them of changes of the node."""

import asyncio
from collections.abc import Sequence

from sqlalchemy import ColumnElement
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Allocation, Node, Region
from activities.nodes.addresses import address_of
from activities.placement.allocation_states import is_leaving, is_of_job
from activities.temporal.client import id_of_this_activity, tell
from workflows.contracts.base import Contract
from workflows.contracts.jobs import (
    EndRequest,
    MachineGone,
    NodeEnding,
    NodeReachable,
    NodeUnreachable,
    run_id,
)
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.nodes import LeavingRun, NodeAddress, NodeNotice
from workflows.effects.nodes import (
    FindNodeRuns,
    JobsNotified,
    NodeRunsFound,
    NotifyJobs,
)
from workflows.rules.counts import counted

_SIGNALS_AT_ONCE = 32


@activity.defn
def find_node_runs(command: FindNodeRuns) -> NodeRunsFound:
    """The runs of live jobs on the node, their jobs, and the leaving runs."""
    with database().read() as session:
        held = _allocations(session, command.node_id, is_of_job())
        leaving = _allocations(session, command.node_id, is_leaving())
        node = session.get(Node, command.node_id)
    return NodeRunsFound(
        run_ids=tuple(_run_id(each) for each in held),
        job_ids=tuple(dict.fromkeys(each.job_id for each in held)),
        leaving=tuple(
            LeavingRun(run_id=_run_id(each), gpu_indices=tuple(each.gpu_indices))
            for each in leaving
        ),
        sequence=node.sequence if node else 0,
    )


@activity.defn
async def notify_jobs(command: NotifyJobs) -> JobsNotified:
    """Notify every job on the node; a job that has ended meanwhile is skipped.

    Raises: ApplicationError, to be retried, when some jobs could not be notified; all are tried
    first.
    """
    found = await asyncio.to_thread(find_node_runs, FindNodeRuns(node_id=command.node_id))
    signal, argument = await asyncio.to_thread(_message, command)
    slots = asyncio.Semaphore(_SIGNALS_AT_ONCE)
    request_id = id_of_this_activity()

    async def one(job_id: str) -> str | None:
        async with slots:
            try:
                await tell(workflow_id_of(job_id), signal, argument, request_id=request_id)
            except (RPCError, ApplicationError) as cause:
                return f"{job_id}: {cause}"
            return None

    errors = [error for error in await asyncio.gather(*map(one, found.job_ids)) if error]
    if errors:
        raise ApplicationError(
            f"{signal}: {counted(len(errors), 'job')} not notified, first {errors[0]}"
        )
    return JobsNotified(job_ids=found.job_ids)


def _message(command: NotifyJobs) -> tuple[str, Contract]:
    if command.notice is NodeNotice.UNREACHABLE:
        outage = NodeUnreachable(node_id=command.node_id, reason=command.reason)
        return "node_unreachable", outage
    if command.notice is NodeNotice.ENDING:
        return "node_ending", NodeEnding(node_id=command.node_id, reason=command.reason)
    if command.notice in (NodeNotice.MACHINE_GONE, NodeNotice.PROTOCOL_VIOLATED):
        gone = MachineGone(
            node_id=command.node_id,
            reason=command.reason,
            ended_at=command.ended_at,
            is_violation=command.notice is NodeNotice.PROTOCOL_VIOLATED,
        )
        return "machine_gone", gone
    if command.notice is NodeNotice.REACHABLE:
        return "node_reachable", NodeReachable(
            node_id=command.node_id, node=_address(command.node_id)
        )
    removed = EndRequest(
        reason=command.reason,
        code="node-removed",
        node_id=command.node_id,
        is_gone=command.notice is NodeNotice.REMOVED_UNREACHABLE,
    )
    return "stop", removed


def _address(node_id: str) -> NodeAddress | None:
    """The present address of a node, which may have changed while the node was unreachable."""
    with database().read() as session:
        node = session.get(Node, node_id)
        if node is None or node.host is None:
            return None
        return address_of(node, session.get_one(Region, node.region_id))


def _allocations(
    session: Session, node_id: str, which: ColumnElement[bool]
) -> Sequence[Allocation]:
    on_node = select(Allocation).where(col(Allocation.node_id) == node_id, which)
    by_job = (col(Allocation.job_id), col(Allocation.attempt), col(Allocation.worker))
    return session.exec(on_node.order_by(*by_job)).all()


def _run_id(held: Allocation) -> str:
    return run_id(held.job_id, held.worker, held.attempt)
