"""Leases of nodes: acquiring them, releasing them, and notifying the node that holds one."""

import asyncio
from datetime import datetime, timedelta

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import (
    Lease,
    Node,
    OutboxRow,
)
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import create, enqueue, is_waiting
from activities.temporal.client import id_of_this_activity, tell
from workflows.contracts.base import Contract
from workflows.contracts.errors import NOT_FOUND, REFUSED
from workflows.contracts.leases import LeaseRelease, MachineReady
from workflows.contracts.lifecycles import NODE, workflow_id_of
from workflows.contracts.machines import MachineObservation, MachineOffer
from workflows.contracts.statuses import LeaseStatus, MachineState, NodeStatus
from workflows.effects.leases import (
    AcquireLease,
    HolderNotified,
    LeaseAcquired,
    LeaseReleased,
    NotifyHolder,
    ReleaseLease,
)

MACHINE_PREFIX = "baseload-"
"""The prefix of machine names at providers, by which a cloud's notifications are filtered."""
_LIVE = (
    LeaseStatus.RESERVED,
    LeaseStatus.CREATING,
    LeaseStatus.WAITING_FOR_SSH,
    LeaseStatus.READY,
)


@activity.defn
def acquire_lease(command: AcquireLease) -> LeaseAcquired:
    """The lease of this id, else the live lease of the node, else a new lease.

    A new lease is committed together with the start of its workflow.
    Raises: Refused, when the node is being removed; NotFound, when there is no such node.
    """
    with database().write() as session:
        leased, request_id = _leased(session, command)
    if request_id is not None:
        relay_soon([request_id])
    return leased


def _leased(session: Session, command: AcquireLease) -> tuple[LeaseAcquired, str | None]:
    node = session.get(Node, command.node_id, with_for_update=True)
    if node is None:
        raise ApplicationError(f"{command.node_id}: there is no such node", type=NOT_FOUND)
    row = session.get(Lease, command.lease_id) or _live_lease(session, node.id)
    if row is not None:
        return _acquired(row), _refresh(session, row, command)
    if node.status in (NodeStatus.REMOVING, NodeStatus.ARCHIVED):
        raise ApplicationError(
            f"node {node.name}: is being removed and gets no machine", type=REFUSED
        )
    row = _lease_of(node, command)
    return _acquired(row), create(session, row)


def _refresh(session: Session, row: Lease, command: AcquireLease) -> str | None:
    """Have a ready lease poll its provider whose machine cannot be reached."""
    if not command.is_unreachable or row.status != LeaseStatus.READY:
        return None
    return enqueue(session, row.id, "refresh", None, command.at)


def _live_lease(session: Session, node_id: str) -> Lease | None:
    """The newest live lease of a node, whose workflow may have lost its id."""
    query = select(Lease).where(col(Lease.holder_id) == node_id, col(Lease.status).in_(_LIVE))
    return session.exec(query.order_by(col(Lease.id).desc())).first()


def _lease_of(node: Node, command: AcquireLease) -> Lease:
    claim = command.machine
    return Lease(
        id=command.lease_id,
        account_id=node.account_id,
        name=f"{MACHINE_PREFIX}{command.lease_id}",
        region_id=command.region_id,
        provider_id=claim.provider_id,
        provider_kind=claim.provider_kind,
        holder_id=node.id,
        offers=[offer.model_dump(mode="json") for offer in claim.offers],
        spec=claim.spec.model_dump(mode="json"),
        price_cap_microcredits_per_hour=claim.price_cap_microcredits_per_hour,
        deadline=command.at + timedelta(seconds=claim.spec.lifetime_s),
        status=LeaseStatus.RESERVED,
        created_at=command.at,
        updated_at=command.at,
    )


def _acquired(row: Lease) -> LeaseAcquired:
    status = LeaseStatus(row.status)
    ready = _ready(row) if status is LeaseStatus.READY else None
    return LeaseAcquired(lease_id=row.id, status=status, reason=row.status_reason, ready=ready)


def _ready(row: Lease) -> MachineReady:
    """The message of a ready lease, as the lease's workflow sends it to the holder."""
    offer = MachineOffer.model_validate(row.offer)
    observation = MachineObservation(
        state=MachineState.RUNNING,
        zone=offer.zone,
        provider_machine_id=row.provider_machine_id,
        host=row.host,
        port=row.port,
        user=row.user,
        minion_id=row.minion_id,
        microcredits_per_hour=row.microcredits_per_hour,
        began_at=row.began_at,
    )
    return MachineReady(lease_id=row.id, seen=observation, offer=offer)


@activity.defn
async def release_lease(command: ReleaseLease) -> LeaseReleased:
    """Signal `release` to every open lease of the node; return these leases.

    A repeated signal changes nothing, and a lease whose row is `releasing` gets none: a node asks
    again and again until its machine is gone. If the node's row is ahead of the command, a newer
    workflow run owns the node and no lease is signalled, because its lease may be a new one.
    """
    leases, sequence = await asyncio.to_thread(_open_leases, command.node_id)
    left = tuple(leases)
    if sequence > command.sequence:
        return LeaseReleased(left=left, sequence=sequence)
    release = LeaseRelease(reason=command.reason, by_holder=True)
    for lease_id in left:
        if leases[lease_id] == LeaseStatus.RELEASING:
            continue
        if not await tell(workflow_id_of(lease_id), "release", release):
            requests = await asyncio.to_thread(_enqueue_release, lease_id, release, command.at)
            relay_soon(requests)
    return LeaseReleased(left=left)


def _open_leases(node_id: str) -> tuple[dict[str, LeaseStatus], int]:
    """The open leases of the node by id with their statuses, and the sequence of the node's last
    recorded step."""
    final = [status for status in LeaseStatus if status.is_final]
    of_it = (col(Lease.holder_id) == node_id, col(Lease.status).not_in(final))
    with database().read() as session:
        node = session.get(Node, node_id)
        rows = session.exec(select(Lease.id, Lease.status).where(*of_it)).all()
        leases = {lease_id: LeaseStatus(status) for lease_id, status in sorted(rows)}
        return leases, node.sequence if node else 0


def _enqueue_release(lease_id: str, release: LeaseRelease, at: datetime) -> list[str]:
    """Enqueue the signal for a lease whose workflow has not started, or is lost; once."""
    with database().write(f"give back {lease_id}") as session:
        waits = select(OutboxRow.id).where(
            col(OutboxRow.resource_id) == lease_id,
            col(OutboxRow.verb) == "release",
            is_waiting(),
        )
        found = session.exec(waits).first()
        return [found or enqueue(session, lease_id, "release", release, at)]


@activity.defn
async def notify_holder(command: NotifyHolder) -> HolderNotified:
    """Signal the holder of a lease that its machine is ready, ends as planned, or is lost.

    The holder receives the signal once, also when this activity is retried.
    """
    workflow_id = workflow_id_of(command.holder_id)
    signal, message = _message(command)
    if await tell(workflow_id, signal, message, request_id=id_of_this_activity()):
        return HolderNotified(is_there=True)
    is_open = await asyncio.to_thread(_is_open, command.holder_id)
    return HolderNotified(is_there=is_open, is_notified=not is_open)


def _is_open(holder_id: str) -> bool:
    """Whether the row of a holder is open, whose workflow is lost then and will be restarted."""
    with database().read() as session:
        holder = session.get(Node, holder_id)
        return holder is not None and holder.status not in NODE.final_statuses


def _message(command: NotifyHolder) -> tuple[str, Contract | None]:
    if command.ready is not None:
        return "machine_ready", command.ready
    if command.ending is not None:
        return "lease_ending", command.ending
    return "machine_lost", command.lost
