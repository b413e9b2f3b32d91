"""Region caches: the addresses at which the machines of a region reach them."""

from collections.abc import Collection

from sqlmodel import Session, col, select

from activities.db.tables import Node, Region
from activities.nodes.addresses import address_of
from activities.storage.run_specs import RegionCache
from workflows.contracts.nodes import Preparation
from workflows.contracts.regions import CacheAddress
from workflows.contracts.statuses import NodeStatus
from workflows.rules.nodes.requirements import STORAGE

CENTRAL = "central"


def caches_of(session: Session, node_ids: Collection[str]) -> dict[str, RegionCache]:
    """Node id to the region cache, for those of the nodes whose region has one now.

    Leased machines use it, and own ones in regions with central storage; these for packages only
    where their owner has set up the same index there as on the storage node.
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
        region_id: cache_of_region(session, region_id)
        for region_id in {each.region_id for each in nodes}
    }
    return {
        node.id: cache.model_copy(
            update={
                "has_packages": node.machine is not None or cache.is_secure,
                "wants_same_index": node.machine is None,
            }
        )
        for node in nodes
        if (cache := caches[node.region_id]) is not None
    }


def cache_of_region(session: Session, region_id: str) -> RegionCache | None:
    """The region cache on the region's storage node; None: no storage node serves one now."""
    node = serving_node(session, region_id)
    if node is None:
        return None
    region, prepared = session.get_one(Region, region_id), _prepared(node)
    return RegionCache(
        node=address_of(node, region),
        address=prepared.cache or "",
        is_secure=prepared.cache_is_secure,
    )


def serving_node(session: Session, region_id: str) -> Node | None:
    """The storage node that serves the region's cache now.

    One that takes another's place serves as soon as it is filled and that one is being removed, or
    when that one is away.
    """
    query = (
        select(Node)
        .where(col(Node.region_id) == region_id, col(Node.status) == NodeStatus.ACTIVE)
        .order_by(col(Node.id).desc())
    )
    rows = session.exec(query).all()
    serving = {row.id: row for row in rows if serves(row)}
    return next((row for row in serving.values() if row.fills_from not in serving), None)


def serves(node: Node) -> bool:
    """Whether an active node serves a region cache."""
    return STORAGE in node.services and bool(_prepared(node).cache and node.host)


def cache_address_of(node: Node) -> CacheAddress:
    """Where machines of the region reach the cache of a node that serves one."""
    prepared = _prepared(node)
    return CacheAddress(
        node_id=node.id, address=prepared.cache or "", is_secure=prepared.cache_is_secure
    )


def _prepared(node: Node) -> Preparation:
    return Preparation.model_validate(node.preparation or {})
