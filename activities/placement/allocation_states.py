"""The allocations that a query means, by their states; an allocation is live until it is gone."""

from sqlalchemy import ColumnElement, and_
from sqlmodel import col

from activities.db.tables import Allocation
from workflows.contracts.statuses import AllocationState


def is_live() -> ColumnElement[bool]:
    """The allocation holds its GPUs, CPUs, memory and port."""
    return col(Allocation.released_at).is_(None)


def is_unconfirmed() -> ColumnElement[bool]:
    """The job has not confirmed the allocation yet, so the allocation can be withdrawn."""
    unconfirmed = (AllocationState.HELD, AllocationState.NOTIFIED)
    return and_(is_live(), col(Allocation.state).in_(unconfirmed))


def is_of_job() -> ColumnElement[bool]:
    """The allocation belongs to its job, and not, as a leaving one, to its node."""
    return and_(is_live(), col(Allocation.state) != AllocationState.LEAVING)


def is_leaving() -> ColumnElement[bool]:
    """The job has ended, and nobody has seen its run on the node end."""
    return and_(is_live(), col(Allocation.state) == AllocationState.LEAVING)
