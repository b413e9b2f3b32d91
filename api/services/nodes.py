"""Nodes: their responses and their changes."""

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.nodes.creation import add_leased_node
from activities.nodes.join_tokens import announced
from activities.nodes.wanted import want
from activities.placement.allocation_states import is_live
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import nodes as schemas
from api.services.announcements import node_of
from api.services.cloud_machines import leased_node, must_be_own
from api.services.lifecycles import GONE, must_be_free, remove, wrong_state
from api.services.ownership import lifecycle, own_locked
from workflows.contracts.jobs import run_id
from workflows.contracts.nodes import Hardware, NodeAction, Preparation, Requirement
from workflows.contracts.regions import Replacement
from workflows.contracts.statuses import AllocationState, NodeStatus, RegionStatus
from workflows.rules.catalogue.providers import traits_of

_SAME = (
    "region_id", "minion_id", "type", "services", "upnp", "mining", "port", "user", "gpu_type",
    "gpu_count", "cpu_count", "memory_bytes", "reserved_cpu_count", "reserved_memory_bytes",
)  # fmt: skip
_SHOWN = ("id", "job_id", "worker", "attempt", "gpu_indices", "cpu_count", "memory_bytes")
_IN_USE = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE)


def node_responses(session: Session, rows: Sequence[tables.Node]) -> list[schemas.Node]:
    """The nodes, each with the jobs that hold its GPUs, and its leaving allocations."""
    live = session.exec(
        select(tables.Allocation).where(
            col(tables.Allocation.node_id).in_([row.id for row in rows]),
            is_live(),
        )
    )
    held: dict[str, list[tables.Allocation]] = defaultdict(list)
    for allocation in live:
        held[allocation.node_id].append(allocation)
    return [_shown(row, held[row.id]) for row in rows]


def node_response(session: Session, row: tables.Node) -> schemas.Node:
    return node_responses(session, [row])[0]


def _shown(row: tables.Node, held: Sequence[tables.Allocation]) -> schemas.Node:
    leaving = [each for each in held if each.state == AllocationState.LEAVING]
    job_of = {index: each.job_id for each in held for index in each.gpu_indices}
    hardware = Hardware.model_validate(row.hardware).model_dump() if row.hardware else None
    preparation = Preparation.model_validate(row.preparation) if row.preparation else None
    requirements = [Requirement.model_validate(found) for found in row.requirements]
    return schemas.Node(
        **lifecycle(row),
        **{name: getattr(row, name) for name in _SAME},
        address=row.host,
        leased=row.machine is not None,
        hardware=schemas.NodeHardware(**hardware) if hardware else None,
        requirements=[schemas.NodeRequirement(**found.model_dump()) for found in requirements],
        preparation=schemas.NodePreparation(**preparation.model_dump()) if preparation else None,
        gpus=[
            schemas.NodeGpu(**gpu, job_id=job_of.get(gpu["index"]))
            for gpu in (hardware or {}).get("gpus", ())
        ],
        job_ids=sorted({each.job_id for each in held if each not in leaving}),
        leaving_allocations=[
            schemas.LeavingAllocation(
                **{name: getattr(each, name) for name in _SHOWN}, reserved_at=each.created_at
            )
            for each in sorted(leaving, key=attrgetter("id"))
        ],
    )


def add_node(context: ChangeContext, asked: schemas.NodeCreation) -> schemas.Node:
    """Add a machine you own as a node, or create a node on a machine in a cloud.

    Raises: Problem `not-found`, when the region is not the account's; `conflict`, when the region
    takes no nodes, or a node has this minion id; `invalid-request`, when a field is wrong.
    """
    region = own_locked(context.session, tables.Region, asked.region_id, context.caller)
    if region.status not in (RegionStatus.HEALTHY, RegionStatus.OFFLINE):
        raise wrong_state("region", region, "healthy to take nodes")
    if asked.mining:
        raise invalid(field_error("mining", "is not available yet", True))
    if traits_of(region.provider_kind).is_cloud:
        node, request_id = add_leased_node(
            context.session, region, leased_node(region, asked), context.now
        )
        context.requests.append(request_id)
        return node_response(context.session, node)
    minion_id = must_be_own(asked)
    _check_node(context, asked, region, minion_id)
    known = announced(context.session, region.id, minion_id)
    is_announced = asked.address is None and known is not None
    row = tables.Node(
        id=new_id("nod"),
        account_id=context.caller.account_id,
        name=asked.name,
        region_id=region.id,
        minion_id=minion_id,
        type=asked.type,
        services=sorted(set(asked.services)),
        upnp=asked.upnp,
        mining=asked.mining,
        host=known.host if is_announced and known else asked.address,
        port=known.port if is_announced and known else asked.port,
        user=known.user if is_announced and known else asked.user,
        hardware=None,
        requirements=[],
        preparation=None,
        created_at=context.now,
        updated_at=context.now,
    )
    context.create(row)
    return node_response(context.session, row)


def _check_node(
    context: ChangeContext, asked: schemas.NodeCreation, region: tables.Region, minion_id: str
) -> None:
    advisory_lock(context.session, f"minion/{minion_id}")
    taken = node_of(context.session, minion_id, region.account_id)
    if taken is not None:
        detail = f"minion id {minion_id}: is that of node {taken.name} ({taken.id})"
        raise Problem("conflict", detail)
    if "storage" in asked.services and region.storage_mode != "central":
        rule = "storage nodes are for regions with central storage"
        raise invalid(field_error("services", rule, "storage"))
    if region.storage_mode == "central":
        _check_storage(context.session, asked, region)


def _check_storage(session: Session, asked: schemas.NodeCreation, region: tables.Region) -> None:
    """Refuse a second storage node in a region, and a compute node before the storage node."""
    live = session.exec(
        select(tables.Node).where(
            tables.Node.region_id == region.id, tables.Node.status != NodeStatus.ARCHIVED
        )
    )
    storage = next((node for node in live if "storage" in node.services), None)
    if "storage" in asked.services and storage is not None:
        detail = f"region {region.name}: has its one storage node, {storage.name} ({storage.id})"
        raise Problem("conflict", detail)
    if "storage" not in asked.services and (storage is None or storage.status not in _IN_USE):
        found = "none" if storage is None else f"{storage.name}, which is {storage.status}"
        detail = f"region {region.name}: needs its storage node first, found {found}"
        raise Problem("conflict", detail)


def act(
    context: ChangeContext, node_id: str, action: NodeAction, *, force: bool = False
) -> schemas.Node:
    """Request an action of a node; an action that ends jobs needs `force` where there are any.

    Raises: Problem `conflict`, when the node has another status, or has jobs and is not forced.
    """
    row = own_locked(context.session, tables.Node, node_id, context.caller)
    if row.status not in action.allowed + (action.allowed_leased if row.machine else ()):
        allowed = " or ".join(action.allowed)
        raise wrong_state("node", row, f"{allowed} to {action.verb}")
    shown = node_response(context.session, row)
    if action.takes_force and not force:
        must_be_free(row, ("jobs", shown.job_ids))
    if action.status is not None:
        want(row, action.status)
        context.session.add(row)
        context.wake(row.id)
        return shown
    given = {"force": force} if action.takes_force else {}
    message = None if action.message is None else action.message.model_validate(given)
    context.tell(row.id, action.name, message)
    return shown


def replace_node(context: ChangeContext, node_id: str) -> schemas.Node:
    """Replace the storage node of a cloud region: the region creates one, then removes the old.

    Raises: Problem `conflict`, when the node is no leased storage node, or the region is not
    healthy or offline.
    """
    row = own_locked(context.session, tables.Node, node_id, context.caller)
    if row.machine is None or "storage" not in row.services:
        found = "a machine of yours" if row.machine is None else "no storage node"
        raise Problem("conflict", f"node {row.name}: is {found}: remove it, then add another")
    region = own_locked(context.session, tables.Region, row.region_id, context.caller)
    if row.status in GONE or region.status not in (RegionStatus.HEALTHY, RegionStatus.OFFLINE):
        raise wrong_state("region", region, "healthy or offline to have its storage replaced")
    context.tell(region.id, "replace", Replacement(requested_by=context.caller.user_id))
    return node_response(context.session, row)


def remove_node(context: ChangeContext, node_id: str, *, force: bool) -> schemas.Node:
    """Remove a node; a node with jobs needs `force`.

    So does one with leaving allocations, unless its machine is leased and ends with it.
    Raises: Problem `conflict`, when the node is the storage node of a cloud region, or has jobs
    or leaving allocations and is not forced.
    """
    row = own_locked(context.session, tables.Node, node_id, context.caller)
    shown = node_response(context.session, row)
    if row.machine is not None and "storage" in row.services and row.status not in GONE:
        detail = f"node {row.name}: is its region's storage: replace it, or remove the region"
        raise Problem("conflict", detail)
    left = [] if row.machine is not None else shown.leaving_allocations
    runs = [run_id(each.job_id, each.worker, each.attempt) for each in left]
    kind = "runs that could not be ended:" if runs and not shown.job_ids else "jobs"
    remove(context, row, force=force, holds=(kind, shown.job_ids or runs))
    return shown
