"""The jobs that hold allocations on a node, and notifying them of changes of the node."""

import asyncio

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Allocation, Node, Region
from activities.nodes.addresses import address_of
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
from workflows.contracts.nodes import NodeAddress, NodeNotice
from workflows.effects.nodes import (
    FindNodeRuns,
    JobsNotified,
    NodeRunsFound,
    NotifyJobs,
)

_SIGNALS_AT_ONCE = 32


@activity.defn
def find_node_runs(command: FindNodeRuns) -> NodeRunsFound:
    """The runs of live allocations on the node, and their jobs."""
    with database().read() as session:
        live = _live(session, command.node_id)
    return NodeRunsFound(
        run_ids=tuple(run_id(held.job_id, held.worker, held.attempt) for held in live),
        job_ids=tuple(dict.fromkeys(held.job_id for held in live)),
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
        raise ApplicationError(f"{signal}: {len(errors)} jobs not notified, first {errors[0]}")
    return JobsNotified(job_ids=found.job_ids)


def _message(command: NotifyJobs) -> tuple[str, Contract]:
    if command.notice is NodeNotice.UNREACHABLE:
        outage = NodeUnreachable(node_id=command.node_id, reason=command.reason)
        return "node_unreachable", outage
    if command.notice is NodeNotice.ENDING:
        return "node_ending", NodeEnding(node_id=command.node_id, reason=command.reason)
    if command.notice is NodeNotice.MACHINE_GONE:
        gone = MachineGone(
            node_id=command.node_id, reason=command.reason, ended_at=command.ended_at
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


def _live(session: Session, node_id: str) -> list[Allocation]:
    query = (
        select(Allocation)
        .where(col(Allocation.node_id) == node_id, col(Allocation.released_at).is_(None))
        .order_by(col(Allocation.job_id), col(Allocation.worker))
    )
    return list(session.exec(query).all())
