"""Nodes: their responses and their changes."""

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.nodes.creation import add_leased_node
from activities.nodes.join_tokens import announced
from activities.nodes.wanted import can_be_idle, want
from activities.placement.allocation_states import is_live
from api.changes import ChangeContext
from api.problems import field_error, invalid
from api.schemas import nodes as schemas
from api.services.cloud_machines import leased_node, must_be_own
from api.services.guests import let_guests_leave
from api.services.lifecycles import GONE, must_be_free, remove, wrong_state
from api.services.minions import must_be_unknown
from api.services.ownership import lifecycle, own_locked
from api.services.storage_nodes import (
    check_services,
    machine_of,
    must_be_created_by_region,
    must_be_replaceable,
    must_not_be_needed,
)
from workflows.contracts.jobs import run_id
from workflows.contracts.nodes import (
    Hardware,
    IdleWorkloadFacts,
    NodeAction,
    Preparation,
    Requirement,
)
from workflows.contracts.regions import Replacement
from workflows.contracts.statuses import AllocationState, RegionStatus
from workflows.rules.catalogue.providers import traits_of

_SAME = (
    "region_id", "minion_id", "type", "services", "fills_from", "upnp", "mining", "port", "user",
    "gpu_type", "gpu_count", "cpu_count", "memory_bytes", "reserved_cpu_count",
    "reserved_memory_bytes",
)  # fmt: skip
_SHOWN = ("id", "job_id", "worker", "attempt", "gpu_indices", "cpu_count", "memory_bytes")


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
        idle_workload=_idle_workload(row),
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


def _idle_workload(row: tables.Node) -> schemas.NodeIdleWorkload | None:
    if row.idle_workload is None:
        return None
    facts = IdleWorkloadFacts.model_validate(row.idle_workload)
    return schemas.NodeIdleWorkload(**facts.model_dump())


def add_node(context: ChangeContext, asked: schemas.NodeCreation) -> schemas.Node:
    """Add a machine you own as a node, or create a node on a machine in a cloud.

    Raises: Problem `not-found`, when the region is not the account's; `conflict`, when the region
    takes no nodes, or a node or device has this minion id; `invalid-request`, when a field is
    wrong.
    """
    region = own_locked(context.session, tables.Region, asked.region_id, context.caller)
    if region.status not in (RegionStatus.HEALTHY, RegionStatus.OFFLINE):
        raise wrong_state("region", region, "healthy to take nodes")
    is_cloud = traits_of(region.provider_kind).is_cloud
    if asked.mining:
        _check_idle_workload(context, can_have=not is_cloud and "compute" in asked.services)
    if is_cloud:
        node, request_id = add_leased_node(
            context.session, region, leased_node(region, asked), context.now
        )
        context.requests.append(request_id)
        return node_response(context.session, node)
    minion_id = must_be_own(asked)
    check_services(context.session, asked.services, region)
    return node_response(context.session, _own_machine(context, region, asked, minion_id))


def _own_machine(
    context: ChangeContext,
    region: tables.Region,
    asked: schemas.NodeCreation,
    minion_id: str,
    *,
    fills_from: str | None = None,
) -> tables.Node:
    """Write the row of an own machine, and the start of its workflow.

    fills_from: the storage node whose place it takes.
    Raises: Problem `conflict`, when a node or device of the account has this minion id.
    """
    must_be_unknown(context.session, minion_id, region.account_id)
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
        fills_from=fills_from,
        hardware=None,
        requirements=[],
        preparation=None,
        created_at=context.now,
        updated_at=context.now,
    )
    context.create(row)
    return row


def change_node(context: ChangeContext, node_id: str, asked: schemas.NodeChange) -> schemas.Node:
    """Switch the idle workload of a node on or off.

    Raises: Problem `invalid-request`, when the node or the account can have none.
    """
    row = own_locked(context.session, tables.Node, node_id, context.caller)
    if "mining" in asked.model_fields_set and asked.mining is None:
        raise invalid(field_error("mining", "is not null"))
    if asked.mining is not None and asked.mining != row.mining:
        if asked.mining:
            _check_idle_workload(context, can_have=can_be_idle(row))
        row.mining, row.updated_at = asked.mining, context.now
        context.session.add(row)
        context.wake(row.id)
    return node_response(context.session, row)


def _check_idle_workload(context: ChangeContext, *, can_have: bool) -> None:
    """Raises: Problem `invalid-request`."""
    if not can_have:
        rule = "is for machines you own that take jobs: none that is rented, none with storage only"
        raise invalid(field_error("mining", rule, True))
    account = context.session.get_one(tables.Account, context.caller.account_id)
    missing = [name for name in ("idle_workload", "wallets") if not getattr(account, name)]
    if missing:
        rule = f"needs {' and '.join(missing)} of the account: PATCH /v1/account"
        raise invalid(field_error("mining", rule, True))


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


def replace_node(
    context: ChangeContext, node_id: str, asked: schemas.NodeReplacement | None
) -> schemas.Node:
    """Replace the storage node of a region; in a cloud the region creates the new one itself.

    Returns the new node, in a cloud the one that is replaced.
    Raises: Problem `conflict`, when the node is no storage node, has a replacement already, or the
    region is not healthy or offline; `invalid-request`, when the machine is not named as it should.
    """
    row = own_locked(context.session, tables.Node, node_id, context.caller)
    region = own_locked(context.session, tables.Region, row.region_id, context.caller)
    must_be_replaceable(context.session, row, region)
    if row.machine is not None:
        must_be_created_by_region(asked)
    else:
        wanted = machine_of(asked, row)
        row = _own_machine(context, region, wanted, must_be_own(wanted), fills_from=row.id)
    context.tell(region.id, "replace", Replacement(requested_by=context.caller.user_id))
    return node_response(context.session, row)


def remove_node(context: ChangeContext, node_id: str, *, force: bool) -> schemas.Node:
    """Remove a node; a node with jobs needs `force`.

    So does one with leaving allocations, unless its machine is leased and ends with it.
    Raises: Problem `conflict`, when the node is the storage node of a cloud region or of nodes that
    are there, or has jobs or leaving allocations and is not forced.
    """
    row = own_locked(context.session, tables.Node, node_id, context.caller)
    shown = node_response(context.session, row)
    must_not_be_needed(context.session, row)
    left = [] if row.machine is not None else shown.leaving_allocations
    runs = [run_id(each.job_id, each.worker, each.attempt) for each in left]
    kind = "runs that could not be ended:" if runs and not shown.job_ids else "jobs"
    if force and row.status not in GONE:
        let_guests_leave(context, [row.id], "its owner removes it")
    remove(context, row, force=force, holds=[(kind, shown.job_ids or runs)])
    return shown
