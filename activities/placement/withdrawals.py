"""Withdrawing allocations of which no job was notified yet."""

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

_UNTOLD = (col(Allocation.notified_at).is_(None), col(Allocation.released_at).is_(None))


@activity.defn
def withdraw_allocations(command: WithdrawAllocations) -> AllocationsWithdrawn:
    """Delete what jobs that were never told hold on the node, and on their other nodes.

    Nothing of the attempt is left, so that it is placed anew; what was made for it is dismissed.
    """
    with database().write() as session:
        jobs = _untold(session, command.node_id)
        requests = _withdraw(session, jobs, command) if jobs else []
    relay_soon(requests)
    if jobs:
        wake_placement()
    return AllocationsWithdrawn(job_ids=tuple(jobs))


def _untold(session: Session, node_id: str) -> list[str]:
    """The jobs that still wait, locked: before nodes are, as where they are placed."""
    held = select(Allocation.job_id).where(col(Allocation.node_id) == node_id, *_UNTOLD)
    waiting = col(Job.status) == JobStatus.WAITING_FOR_RESOURCES
    query = select(Job.id).where(col(Job.id).in_(held), waiting).order_by(col(Job.id))
    return list(session.exec(query.with_for_update()).all())


def _withdraw(session: Session, job_ids: list[str], command: WithdrawAllocations) -> list[str]:
    """Answers the requests that are to be relayed."""
    of_them = select(Allocation).where(col(Allocation.job_id).in_(job_ids), *_UNTOLD)
    places = session.exec(of_them.with_for_update()).all()
    ids = [place.id for place in places]
    session.execute(delete(GpuAllocation).where(col(GpuAllocation.allocation_id).in_(ids)))
    session.execute(delete(Allocation).where(col(Allocation.id).in_(ids)))
    free_capacity(session, places)
    node = session.get_one(Node, command.node_id)
    remember_shortages(session, node, command.reason, command.at)
    why = Refusal(offer_id=node.id, region_id=node.region_id, code="machine", detail=command.reason)
    told = {"placement_refusals": [why.model_dump(mode="json")]}
    session.execute(update(Job).where(col(Job.id).in_(job_ids)).values(told))
    others = {place.node_id for place in places} - {node.id}
    return dismiss_ephemeral(session, others, command.at)
