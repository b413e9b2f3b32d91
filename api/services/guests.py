"""Guests on nodes that their owner removes: they begin again elsewhere instead of ending."""

from collections.abc import Iterable

from sqlmodel import col, select

from activities.db import tables
from activities.placement.allocation_states import is_of_job
from api.changes import ChangeContext
from workflows.contracts.jobs import NodeEnding


def let_guests_leave(context: ChangeContext, node_ids: Iterable[str], reason: str) -> None:
    """Ask all guests on these nodes to leave, with their state, and to wait for another place.

    Call this before the nodes are removed: then the removal does not end these jobs.
    """
    guests = context.session.exec(
        select(tables.Allocation.job_id, tables.Allocation.node_id)
        .join(tables.Job, col(tables.Job.id) == tables.Allocation.job_id)
        .join(tables.Node, col(tables.Node.id) == tables.Allocation.node_id)
        .where(
            col(tables.Allocation.node_id).in_(list(node_ids)),
            col(tables.Job.account_id) != col(tables.Node.account_id),
            is_of_job(),
        )
        .distinct()
        .order_by(col(tables.Allocation.job_id), col(tables.Allocation.node_id))
    )
    for job_id, node_id in guests:
        context.tell(job_id, "node_ending", NodeEnding(node_id=node_id, reason=reason))
