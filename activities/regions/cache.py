"""Region caches: the addresses at which the machines of a region reach them."""

from collections.abc import Collection

from sqlmodel import Session, col, select

from activities.db.tables import Node, Region
from activities.nodes.addresses import address_of
from activities.storage.run_specs import RegionCache
from workflows.contracts.nodes import Preparation
from workflows.contracts.statuses import NodeStatus

CENTRAL = "central"


def caches_of(session: Session, node_ids: Collection[str]) -> dict[str, RegionCache]:
    """Node id to the region cache, for those of the nodes whose region has one now.

    Leased machines use it, and own ones in regions with central storage, but not for packages:
    these come from the index that a machine's owner has set up there.
    """
    query = (
        select(Node, Region.storage_mode)
        .join(Region, col(Region.id) == Node.region_id)
        .where(col(Node.id).in_(node_ids))
    )
    nodes = [
        node
        for node, storage_mode in session.exec(query).all()
        if node.machine is not None or storage_mode == CENTRAL
    ]
    caches = {
        region_id: _cache_of(session, region_id) for region_id in {each.region_id for each in nodes}
    }
    return {
        node.id: cache.model_copy(update={"has_packages": node.machine is not None})
        for node in nodes
        if (cache := caches[node.region_id]) is not None
    }


def _cache_of(session: Session, region_id: str) -> RegionCache | None:
    """The region cache on the newest storage node, which may just be replacing an older one."""
    query = (
        select(Node)
        .where(col(Node.region_id) == region_id, col(Node.status) == NodeStatus.ACTIVE)
        .order_by(col(Node.id).desc())
    )
    for node in session.exec(query).all():
        prepared = Preparation.model_validate(node.preparation or {})
        if "storage" in node.services and prepared.cache and node.host:
            region = session.get_one(Region, region_id)
            return RegionCache(node=address_of(node, region), address=prepared.cache)
    return None
