"""Nodes whose machines are leased for them: for a region's storage, a person, or one job."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, update
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.beginnings import ask, begin
from activities.db.release import dismiss_ephemeral, give_back
from activities.db.session import database
from activities.db.tables import Allocation, GpuAllocation, Job, Lease, Node, Region, RequestRow
from activities.handover import hand_over_soon
from activities.lifecycle_requests import workflow_id_of
from activities.market import avoid_for_a_while
from activities.temporal import tell
from activities.wake import wake_placement
from workflows.contracts.errors import NOT_FOUND, REFUSED
from workflows.contracts.leases import GiveBack, MachineReady
from workflows.contracts.machines import MachineOffer, MachineSeen, MachineWish
from workflows.contracts.placement import Refusal
from workflows.contracts.statuses import JobStatus, LeaseStatus, MachineState, NodeStatus, NodeType
from workflows.effects.leases import LeaseMachine, MachineLeased, MachineReturned, ReturnMachine
from workflows.effects.placement import PlacesWithdrawn, WithdrawPlaces

MACHINE_PREFIX = "baseload-"
"""Of the names of machines at their providers: by it the news of a cloud is told apart."""
_LIVE = (
    LeaseStatus.RESERVED,
    LeaseStatus.CREATING,
    LeaseStatus.WAITING_FOR_SSH,
    LeaseStatus.READY,
)

_UNTOLD = (col(Allocation.announced_at).is_(None), col(Allocation.released_at).is_(None))


@dataclass(frozen=True, slots=True)
class LeasedNode:
    """A node to be added, and the machine that it is to have."""

    node_id: str
    name: str
    type: NodeType
    services: tuple[str, ...]
    machine: MachineWish


def add_leased_node(
    session: Session, region: Region, asked: LeasedNode, at: datetime
) -> tuple[Node, str]:
    """Its row, and the request that starts its workflow, in the caller's transaction.

    The request's id comes with it, to be handed over after the commit.
    """
    row = Node(
        id=asked.node_id,
        account_id=region.account_id,
        name=asked.name,
        region_id=region.id,
        minion_id="",
        type=asked.type,
        services=sorted(asked.services),
        machine=asked.machine.model_dump(mode="json"),
        hardware=None,
        requirements=[],
        preparation=None,
        created_at=at,
        updated_at=at,
    )
    return row, begin(session, row, "node")


@activity.defn
def lease_machine(command: LeaseMachine) -> MachineLeased:
    """The lease of this id, else the one that lives for the node, else a new one, committed with
    the start of its workflow.

    Raises: Refused, when the node is being removed; NotFound, when it never was.
    """
    with database().write() as session:
        leased, request_id = _leased(session, command)
    if request_id is not None:
        hand_over_soon([request_id])
    return leased


def _leased(session: Session, command: LeaseMachine) -> tuple[MachineLeased, str | None]:
    node = session.get(Node, command.node_id, with_for_update=True)
    if node is None:
        raise ApplicationError(f"{command.node_id}: there is no such node", type=NOT_FOUND)
    row = session.get(Lease, command.lease_id) or _live_lease(session, node.id)
    if row is not None:
        return _told_of(row), None
    if node.status in (NodeStatus.REMOVING, NodeStatus.ARCHIVED):
        raise ApplicationError(f"node {node.name}: is removed and gets no machine", type=REFUSED)
    row = _lease_of(node, command)
    return _told_of(row), begin(session, row, "lease")


def _live_lease(session: Session, node_id: str) -> Lease | None:
    """Its workflow may have forgotten it; the newest, where there are more."""
    query = select(Lease).where(col(Lease.holder_id) == node_id, col(Lease.status).in_(_LIVE))
    return session.exec(query.order_by(col(Lease.id).desc())).first()


def _lease_of(node: Node, command: LeaseMachine) -> Lease:
    wish = command.machine
    return Lease(
        id=command.lease_id,
        account_id=node.account_id,
        name=f"{MACHINE_PREFIX}{command.lease_id}",
        region_id=command.region_id,
        provider_id=wish.provider_id,
        provider_kind=wish.provider_kind,
        holder_id=node.id,
        offers=[offer.model_dump(mode="json") for offer in wish.offers],
        spec=wish.spec.model_dump(mode="json"),
        price_cap_microcredits_per_hour=wish.price_cap_microcredits_per_hour,
        deadline=command.at + timedelta(seconds=wish.spec.lifetime_s),
        status=LeaseStatus.RESERVED,
        created_at=command.at,
        updated_at=command.at,
    )


def _told_of(row: Lease) -> MachineLeased:
    status = LeaseStatus(row.status)
    ready = _ready(row) if status is LeaseStatus.READY else None
    return MachineLeased(lease_id=row.id, status=status, reason=row.status_reason, ready=ready)


def _ready(row: Lease) -> MachineReady:
    """As its workflow has told, or will tell, whoever it is for."""
    offer = MachineOffer.model_validate(row.offer)
    seen = MachineSeen(
        state=MachineState.RUNNING,
        place=offer.place,
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
async def return_machine(command: ReturnMachine) -> MachineReturned:
    """Tell every lease of the node that its machine is not needed; those that had one until then.

    Each is told as often as this is asked, and hears the first. An attempt that was held up until
    another run of the node's life has gone on tells nobody: the next machine is not its own.
    """
    left, sequence = await asyncio.to_thread(_open_leases, command.node_id)
    if sequence > command.sequence:
        return MachineReturned(left=left, sequence=sequence)
    asked = GiveBack(reason=command.reason, by_holder=True)
    for lease_id in left:
        if not await tell(workflow_id_of(lease_id), "give_back", asked):
            requests = await asyncio.to_thread(_ask_to_give_back, lease_id, asked, command.at)
            hand_over_soon(requests)
    return MachineReturned(left=left)


def _open_leases(node_id: str) -> tuple[tuple[str, ...], int]:
    """Those of the node, and the last step that its row has."""
    final = [status for status in LeaseStatus if status.is_final]
    of_it = (col(Lease.holder_id) == node_id, col(Lease.status).not_in(final))
    with database().read() as session:
        node = session.get(Node, node_id)
        left = tuple(sorted(session.exec(select(Lease.id).where(*of_it)).all()))
        return left, node.sequence if node else 0


def _ask_to_give_back(lease_id: str, asked: GiveBack, at: datetime) -> list[str]:
    """Its workflow has not begun, or waits for the sweep: it is told once it is there."""
    with database().write(f"give back {lease_id}") as session:
        waits = select(RequestRow.id).where(
            col(RequestRow.resource_id) == lease_id,
            col(RequestRow.verb) == "give_back",
            col(RequestRow.delivered_at).is_(None),
        )
        found = session.exec(waits).first()
        return [found or ask(session, lease_id, "give_back", asked, at)]


@activity.defn
def withdraw_places(command: WithdrawPlaces) -> PlacesWithdrawn:
    """Delete what jobs that were never told hold on the node, and on their other nodes.

    Nothing of the attempt is left, so that it is placed anew; what was made for it is dismissed.
    """
    with database().write() as session:
        jobs = _untold(session, command.node_id)
        requests = _withdraw(session, jobs, command) if jobs else []
    hand_over_soon(requests)
    if jobs:
        wake_placement()
    return PlacesWithdrawn(job_ids=tuple(jobs))


def _untold(session: Session, node_id: str) -> list[str]:
    """The jobs that still wait, locked: before nodes are, as where they are placed."""
    held = select(Allocation.job_id).where(col(Allocation.node_id) == node_id, *_UNTOLD)
    waiting = col(Job.status) == JobStatus.WAITING_FOR_RESOURCES
    query = select(Job.id).where(col(Job.id).in_(held), waiting).order_by(col(Job.id))
    return list(session.exec(query.with_for_update()).all())


def _withdraw(session: Session, job_ids: list[str], command: WithdrawPlaces) -> list[str]:
    """Answers the requests that are to be handed over."""
    of_them = select(Allocation).where(col(Allocation.job_id).in_(job_ids), *_UNTOLD)
    places = session.exec(of_them.with_for_update()).all()
    ids = [place.id for place in places]
    session.execute(delete(GpuAllocation).where(col(GpuAllocation.allocation_id).in_(ids)))
    session.execute(delete(Allocation).where(col(Allocation.id).in_(ids)))
    give_back(session, places)
    node = session.get_one(Node, command.node_id)
    avoid_for_a_while(session, node, command.reason, command.at)
    why = Refusal(offer_id=node.id, region_id=node.region_id, code="machine", detail=command.reason)
    told = {"placement_refusals": [why.model_dump(mode="json")]}
    session.execute(update(Job).where(col(Job.id).in_(job_ids)).values(told))
    others = {place.node_id for place in places} - {node.id}
    return dismiss_ephemeral(session, others, command.at)
