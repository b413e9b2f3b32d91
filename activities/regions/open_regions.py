"""The regions whose task queues worker processes serve."""

from sqlmodel import col, select

from activities.db.session import database
from activities.db.tables import Region
from workflows.contracts.statuses import RegionStatus


def open_region_ids() -> frozenset[str]:
    """The ids of all regions that are not archived, whose task queues are served."""
    query = select(Region.id).where(col(Region.status) != RegionStatus.ARCHIVED)
    with database().read() as session:
        return frozenset(session.exec(query).all())
