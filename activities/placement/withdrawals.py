"""Withdrawals: deleting allocations of jobs that were not notified yet."""

from sqlalchemy import delete, update
from sqlmodel import Session, col, select
from temporalio import activity

from activities.db.session import database
from activities.db.tables import Allocation, GpuAllocation, Job, Node
from activities.leases.shortages import remember_shortages
from activities.nodes.ephemeral import dismiss_ephemeral
from activities.outbox.dispatcher import relay_soon
from activities.placement.allocations import free_capacity
from activities.placement.wake import wake_placement
from workflows.contracts.placement import Refusal
from workflows.contracts.statuses import JobStatus
from workflows.effects.placement import AllocationsWithdrawn, WithdrawAllocations

_NOT_NOTIFIED = (col(Allocation.notified_at).is_(None), col(Allocation.released_at).is_(None))


@activity.defn
def withdraw_allocations(command: WithdrawAllocations) -> AllocationsWithdrawn:
    """Withdraw the allocations of jobs on the node that were not notified yet.

    Their allocations on other nodes are withdrawn too, so that the attempt is placed anew, and the
    removal of ephemeral nodes of these jobs is requested.
    """
    with database().write() as session:
        jobs = _waiting_jobs(session, command.node_id)
        requests = _withdraw(session, jobs, command) if jobs else []
    relay_soon(requests)
    if jobs:
        wake_placement()
    return AllocationsWithdrawn(job_ids=tuple(jobs))


def _waiting_jobs(session: Session, node_id: str) -> list[str]:
    """The waiting jobs on the node, locked before any node, in the same order as placement."""
    held = select(Allocation.job_id).where(col(Allocation.node_id) == node_id, *_NOT_NOTIFIED)
    waiting = col(Job.status) == JobStatus.WAITING_FOR_RESOURCES
    query = select(Job.id).where(col(Job.id).in_(held), waiting).order_by(col(Job.id))
    return list(session.exec(query.with_for_update()).all())


def _withdraw(session: Session, job_ids: list[str], command: WithdrawAllocations) -> list[str]:
    """Delete the allocations of these jobs; return the ids of the outbox rows to relay."""
    of_them = select(Allocation).where(col(Allocation.job_id).in_(job_ids), *_NOT_NOTIFIED)
    allocations = session.exec(of_them.with_for_update()).all()
    ids = [allocation.id for allocation in allocations]
    session.execute(delete(GpuAllocation).where(col(GpuAllocation.allocation_id).in_(ids)))
    session.execute(delete(Allocation).where(col(Allocation.id).in_(ids)))
    free_capacity(session, allocations)
    node = session.get_one(Node, command.node_id)
    remember_shortages(session, node, command.reason, command.at)
    why = Refusal(offer_id=node.id, region_id=node.region_id, code="machine", detail=command.reason)
    values = {"placement_refusals": [why.model_dump(mode="json")]}
    session.execute(update(Job).where(col(Job.id).in_(job_ids)).values(values))
    others = {allocation.node_id for allocation in allocations} - {node.id}
    return dismiss_ephemeral(session, others, command.at)
