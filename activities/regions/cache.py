"""Region caches: the addresses at which leased machines reach them."""

from collections.abc import Collection

from sqlmodel import Session, col, select

from activities.db.tables import Node, Region
from activities.nodes.addresses import address_of
from activities.storage.run_specs import RegionCache
from workflows.contracts.nodes import Preparation
from workflows.contracts.statuses import NodeStatus


def caches_of(session: Session, node_ids: Collection[str]) -> dict[str, RegionCache]:
    """Node id to the region cache, for those of the nodes whose region has one now.

    Only nodes with leased machines use a region cache.
    """
    query = select(Node).where(col(Node.id).in_(node_ids))
    leased = [node for node in session.exec(query).all() if node.machine is not None]
    caches = {region_id: _cache_of(session, region_id) for region_id in _regions_of(leased)}
    found = {node.id: caches[node.region_id] for node in leased}
    return {node_id: cache for node_id, cache in found.items() if cache is not None}


def _regions_of(nodes: list[Node]) -> set[str]:
    return {node.region_id for node in nodes}


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
