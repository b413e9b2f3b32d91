"""Withdrawals: deleting allocations that their jobs have not confirmed yet."""

from sqlalchemy import delete, update
from sqlmodel import Session, col, select
from temporalio import activity

from activities.db.session import database
from activities.db.tables import Allocation, GpuAllocation, Job, Node
from activities.leases.shortages import remember_shortages
from activities.nodes.ephemeral import dismiss_ephemeral
from activities.outbox.dispatcher import relay_soon
from activities.placement.allocation_states import is_unconfirmed
from activities.placement.allocations import free_capacity, lock_allocations, lock_jobs
from activities.placement.volume_holds import forget_holds
from activities.placement.wake import wake_placement
from workflows.contracts.placement import Refusal
from workflows.effects.placement import AllocationsWithdrawn, WithdrawAllocations


@activity.defn
def withdraw_allocations(command: WithdrawAllocations) -> AllocationsWithdrawn:
    """Withdraw the allocations on the node that their jobs have not confirmed yet.

    A job that was notified of them meanwhile cannot confirm them any more, and waits on. Their
    allocations on other nodes are withdrawn too, so that the attempt is placed anew, and the
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
    """The jobs with an unconfirmed allocation on the node, locked."""
    on_node = select(Allocation.job_id).where(col(Allocation.node_id) == node_id, is_unconfirmed())
    locked = lock_jobs(session, session.exec(on_node))
    # A separate statement also reads what was committed while this one waited for its locks.
    return sorted(set(session.exec(on_node.where(col(Allocation.job_id).in_(locked)))))


def _withdraw(session: Session, job_ids: list[str], command: WithdrawAllocations) -> list[str]:
    """Delete the allocations of these jobs; return the ids of the outbox rows to relay."""
    of_them = (col(Allocation.job_id).in_(job_ids), is_unconfirmed())
    allocations = lock_allocations(session, *of_them)
    ids = [allocation.id for allocation in allocations]
    session.execute(delete(GpuAllocation).where(col(GpuAllocation.allocation_id).in_(ids)))
    forget_holds(session, ids)
    session.execute(delete(Allocation).where(col(Allocation.id).in_(ids)))
    free_capacity(session, allocations)
    node = session.get_one(Node, command.node_id)
    remember_shortages(session, node, command.reason, command.at)
    why = Refusal(offer_id=node.id, region_id=node.region_id, code="machine", detail=command.reason)
    values = {"placement_refusals": [why.model_dump(mode="json")]}
    session.execute(update(Job).where(col(Job.id).in_(job_ids)).values(values))
    others = {allocation.node_id for allocation in allocations} - {node.id}
    return dismiss_ephemeral(session, others, command.at)
