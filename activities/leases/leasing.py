"""Nodes whose machines are leased for them: for a region's storage, a person, or one job."""

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
from activities.outbox.requests import create, enqueue
from activities.temporal.client import id_of_this_activity, tell
from workflows.contracts.errors import NOT_FOUND, REFUSED
from workflows.contracts.leases import LeaseRelease, MachineReady
from workflows.contracts.lifecycles import workflow_id_of
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
"""Of the names of machines at their providers: by it the news of a cloud is told apart."""
_LIVE = (
    LeaseStatus.RESERVED,
    LeaseStatus.CREATING,
    LeaseStatus.WAITING_FOR_SSH,
    LeaseStatus.READY,
)


@activity.defn
def acquire_lease(command: AcquireLease) -> LeaseAcquired:
    """The lease of this id, else the one that lives for the node, else a new one, committed with
    the start of its workflow.

    Raises: Refused, when the node is being removed; NotFound, when it never was.
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
        return _told_of(row), None
    if node.status in (NodeStatus.REMOVING, NodeStatus.ARCHIVED):
        raise ApplicationError(f"node {node.name}: is removed and gets no machine", type=REFUSED)
    row = _lease_of(node, command)
    return _told_of(row), create(session, row)


def _live_lease(session: Session, node_id: str) -> Lease | None:
    """Its workflow may have forgotten it; the newest, where there are more."""
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


def _told_of(row: Lease) -> LeaseAcquired:
    status = LeaseStatus(row.status)
    ready = _ready(row) if status is LeaseStatus.READY else None
    return LeaseAcquired(lease_id=row.id, status=status, reason=row.status_reason, ready=ready)


def _ready(row: Lease) -> MachineReady:
    """As its workflow has told, or will tell, whoever it is for."""
    offer = MachineOffer.model_validate(row.offer)
    seen = MachineObservation(
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
    return MachineReady(lease_id=row.id, seen=seen, offer=offer)


@activity.defn
async def release_lease(command: ReleaseLease) -> LeaseReleased:
    """Tell every lease of the node that its machine is not needed; those that had one until then.

    Each is told as often as this is asked, and hears the first. An attempt that was held up until
    another run of the node's life has gone on tells nobody: the next machine is not its own.
    """
    left, sequence = await asyncio.to_thread(_open_leases, command.node_id)
    if sequence > command.sequence:
        return LeaseReleased(left=left, sequence=sequence)
    asked = LeaseRelease(reason=command.reason, by_holder=True)
    for lease_id in left:
        if not await tell(workflow_id_of(lease_id), "release", asked):
            requests = await asyncio.to_thread(_ask_to_give_back, lease_id, asked, command.at)
            relay_soon(requests)
    return LeaseReleased(left=left)


def _open_leases(node_id: str) -> tuple[tuple[str, ...], int]:
    """Those of the node, and the last step that its row has."""
    final = [status for status in LeaseStatus if status.is_final]
    of_it = (col(Lease.holder_id) == node_id, col(Lease.status).not_in(final))
    with database().read() as session:
        node = session.get(Node, node_id)
        left = tuple(sorted(session.exec(select(Lease.id).where(*of_it)).all()))
        return left, node.sequence if node else 0


def _ask_to_give_back(lease_id: str, asked: LeaseRelease, at: datetime) -> list[str]:
    """Its workflow has not begun, or waits for the sweep: it is told once it is there."""
    with database().write(f"give back {lease_id}") as session:
        waits = select(OutboxRow.id).where(
            col(OutboxRow.resource_id) == lease_id,
            col(OutboxRow.verb) == "release",
            col(OutboxRow.delivered_at).is_(None),
        )
        found = session.exec(waits).first()
        return [found or enqueue(session, lease_id, "release", asked, at)]


@activity.defn
async def notify_holder(command: NotifyHolder) -> HolderNotified:
    """Signal who the machine is for; once, however often this is done."""
    workflow_id = workflow_id_of(command.holder_id)
    signal = "machine_lost" if command.ready is None else "machine_ready"
    news = command.lost if command.ready is None else command.ready
    heard = await tell(workflow_id, signal, news, request_id=id_of_this_activity())
    return HolderNotified(is_there=heard)
