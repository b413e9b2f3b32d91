"""Storage nodes of regions: what is refused of their addition, their removal and their replacement.

A region has one storage node; a second one is there only while it takes the place of the first.
"""

from collections.abc import Collection, Sequence

from sqlmodel import Session, col, select

from activities.db import tables
from api.problems import Problem, field_error, invalid
from api.schemas.nodes import NodeCreation, NodeReplacement
from api.services.lifecycles import GONE, names_of, wrong_state
from workflows.contracts.devices import DeviceStatus
from workflows.contracts.statuses import NodeStatus, RegionStatus
from workflows.rules.counts import some_of
from workflows.rules.nodes.requirements import STORAGE

_IN_USE = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE)
_SHOWN = 5
"""How many nodes a refusal names at most."""


def check_services(session: Session, services: Collection[str], region: tables.Region) -> None:
    """Check that a region of own machines may have another node with these services.

    Raises: Problem `invalid-request`, for a storage node where each node has storage of its own;
    `conflict`, for a second storage node, or a compute node before the storage node is in use.
    """
    if region.storage_mode != "central":
        if STORAGE in services:
            rule = (
                "storage nodes are for regions with central storage, and this region's storage is "
                "local for good: create a new region with storage_mode central"
            )
            raise invalid(field_error("services", rule, STORAGE))
        return
    found = _live(session, region.id, stores=True)
    if STORAGE in services and found:
        held = f"{found[0].name} ({found[0].id})"
        detail = f"region {region.name}: has its one storage node, {held}: replace that one"
        raise Problem("conflict", detail)
    if STORAGE not in services and not any(node.status in _IN_USE for node in found):
        seen = "none" if not found else f"{found[0].name}, which is {found[0].status}"
        detail = f"region {region.name}: needs its storage node first, found {seen}"
        raise Problem("conflict", detail)


def must_not_be_needed(session: Session, row: tables.Node) -> None:
    """Refuse the removal of the storage node that others need; force changes nothing of that.

    Raises: Problem `conflict`, naming the nodes and devices that need it.
    """
    if STORAGE not in row.services or row.status in GONE:
        return
    if row.machine is not None:
        detail = f"node {row.name}: is its region's storage: replace it, or remove the region"
        raise Problem("conflict", detail)
    region = session.get_one(tables.Region, row.region_id, with_for_update=True)
    others = [node for node in _live(session, region.id, stores=True) if node.id != row.id]
    if any(node.status in _IN_USE for node in others):
        return
    devices = (
        tables.Device.region_id == region.id,
        tables.Device.status != DeviceStatus.ARCHIVED,
    )
    nodes = [f"{node.name} ({node.id})" for node in _live(session, region.id, stores=False)]
    if users := [*nodes, *names_of(session, tables.Device, devices)]:
        raise Problem(
            "conflict",
            f"node {row.name}: is the storage node of {some_of(users, _SHOWN)}: replace it, or "
            "remove these first",
        )


def must_be_replaceable(session: Session, row: tables.Node, region: tables.Region) -> None:
    """Refuse to replace what is no storage node in use, or is being replaced.

    Raises: Problem `conflict`.
    """
    if STORAGE not in row.services:
        detail = f"node {row.name}: is no storage node: remove it, then add another"
        raise Problem("conflict", detail)
    if row.status in GONE or region.status not in (RegionStatus.HEALTHY, RegionStatus.OFFLINE):
        raise wrong_state("region", region, "healthy or offline to have its storage replaced")
    if row.machine is not None:
        return
    others = [node for node in _live(session, region.id, stores=True) if node.id != row.id]
    if others:
        new = others[-1]
        raise Problem(
            "conflict",
            f"node {row.name}: {new.name} ({new.id}), which is {new.status}, takes its place "
            "already: remove that one to give this up",
        )


def machine_of(asked: NodeReplacement | None, row: tables.Node) -> NodeCreation:
    """The addition of the machine that takes the place of a storage node.

    Raises: Problem `invalid-request`, when no machine is named.
    """
    if asked is None:
        rule = "is needed: it is shown on the console of the machine that takes the place"
        raise invalid(field_error("minion_id", rule))
    fields = asked.model_dump()
    return NodeCreation(region_id=row.region_id, services=(STORAGE,), **fields)


def must_be_created_by_region(asked: NodeReplacement | None) -> None:
    """Refuse a machine for a cloud region. Raises: Problem `invalid-request`."""
    if asked is not None:
        rule = "is for machines you own: in a cloud the region creates its storage node itself"
        raise invalid(field_error("minion_id", rule, asked.minion_id))


def _live(session: Session, region_id: str, *, stores: bool) -> Sequence[tables.Node]:
    """The storage nodes of a region, or its other nodes, that are not archived; oldest first."""
    query = select(tables.Node).where(
        tables.Node.region_id == region_id, tables.Node.status != NodeStatus.ARCHIVED
    )
    rows = session.exec(query.order_by(col(tables.Node.id)))
    return [row for row in rows if (STORAGE in row.services) is stores]
