"""The inventory of placement, from rows: nodes with their free resources, and what is held.

Reading takes a handful of queries, for any number of jobs and nodes. The findings of an inspection
change only with the node's own steps, so each process caches them by the node's sequence.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from activities.db.tables import Allocation, GpuAllocation, Job, Node, Region, Reservation
from activities.placement.allocation_states import is_of_job
from activities.settings import settings
from workflows.contracts.nodes import Hardware, Preparation
from workflows.contracts.placement import GB, GpuSlot, NodeOffer
from workflows.contracts.regions import GuestPolicy
from workflows.contracts.statuses import AllocationState, NodeStatus, NodeType, RegionStatus
from workflows.rules.billing.market_prices import market_price
from workflows.rules.billing.usage_fees import usage_rates
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name
from workflows.rules.placement.fair_share import weight
from workflows.rules.placement.guests import is_open
from workflows.rules.placement.inventory import Inventory

SHOWN = (NodeStatus.ACTIVE, NodeStatus.MAINTENANCE, NodeStatus.OFFLINE)
"""Statuses of nodes that a job may wait for; others are not inspected yet, or do not return."""
_CACHED_NODES = 20_000
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The findings of a node's inspection and preparation that placement needs."""

    gpus: tuple[tuple[int, str], ...]
    """Index and UUID of the GPUs of the node's GPU type."""
    free_disk_bytes: int
    disk_bytes: int
    runtimes: tuple[str, ...]
    trusted_only: bool
    has_run_roots: bool
    no_confinement_reason: str | None
    no_attestation_reason: str | None
    job_user: str | None


@dataclass(slots=True)
class Held:
    """The resources that live allocations hold, by node, by project and by account."""

    gpus: dict[str, set[int]]
    ports: dict[str, set[int]]
    disk_bytes: dict[str, int]
    weights: dict[str, int]
    """The weight of what each project and each account holds, by id."""
    reservations: dict[str, str] = field(default_factory=dict)
    """The sentences of `PlanningContext.reservations`."""
    gpus_by_account: dict[str, dict[str, int]] = field(default_factory=dict)
    """How many GPUs of each node the jobs of each account hold."""


_Row = tuple[Any, ...]
_HeldOnNode = tuple[set[int] | None, set[int] | None, int | None]
_Prices = tuple[int, int, int | None]
_OfferInputs = tuple[_Row, _Row, _HeldOnNode, _Prices]
"""The node's row, its region's row, what is held on the node (GPUs, ports, disk), and its prices.
These are plain tuples, since ten thousand of them are compared for one answer."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """All rows from which node offers are built, except what changes only with a node's steps."""

    nodes: list[_Row]
    regions: dict[str, _Row]
    holds: Held
    prices: dict[str | None, _Prices]

    def inputs_of(self, node: _Row) -> _OfferInputs:
        node_id, _, _, region_id, gpu_type, _, _ = node
        holds = self.holds
        used = holds.gpus.get(node_id), holds.ports.get(node_id), holds.disk_bytes.get(node_id)
        return node, self.regions[region_id], used, self.prices[gpu_type]


_facts: dict[tuple[str, int], NodeFacts] = {}
_offers: dict[str, tuple[_OfferInputs, NodeOffer | None]] = {}
_last: tuple[_Snapshot | None, Sequence[NodeOffer]] = (None, ())
_inventory: tuple[Sequence[NodeOffer], Inventory] = ((), Inventory(()))


def node_offers(session: Session, at: datetime, known: Held | None = None) -> Sequence[NodeOffer]:
    """The offers of all nodes that a job may wait for, with their free resources, sorted by id.

    Returns the same object as before unless something has changed.
    known: what is held, if the caller has read it already.
    """
    global _last  # noqa: PLW0603 - one for each process
    snapshot = _read_snapshot(session, at, known or held(session))
    before, offers = _last
    if snapshot != before:
        offers = _offers_in(session, snapshot)
        _last = (snapshot, offers)
    return offers


def preferring(offers: Sequence[NodeOffer], providers: Collection[str]) -> Sequence[NodeOffer]:
    """The offers, of which those of preferred providers say so."""
    if not providers:
        return offers
    return [
        offer.model_copy(update={"preferred": True}) if offer.provider_id in providers else offer
        for offer in offers
    ]


def inventory(session: Session, at: datetime, preferred: Collection[str] = ()) -> Inventory:
    """All of `node_offers` as the rules use them; callers must not allocate from this one.

    preferred: ids of the providers whose credits are used first.
    """
    global _inventory  # noqa: PLW0603 - one for each process
    holds = held(session)
    offers = node_offers(session, at, holds)
    if preferred:
        return Inventory(preferring(offers, preferred), holds.reservations)
    before, made = _inventory
    if offers is not before:  # They are others as soon as something else is held.
        made = Inventory(offers, holds.reservations)
        _inventory = (offers, made)
    return made


def _read_snapshot(session: Session, at: datetime, holds: Held) -> _Snapshot:
    columns = (
        Region.id,
        Region.name,
        Region.status,
        Region.provider_id,
        Region.provider_kind,
        Region.allows_apt_packages,
        Region.public,
        Region.account_id,
        Region.guest_policy,
    )
    regions = {row.id: tuple(row) for row in session.execute(select(*columns))}  # type: ignore[call-overload]
    rows = session.execute(
        select(  # type: ignore[call-overload]
            Node.id,
            Node.sequence,
            Node.status,
            Node.region_id,
            Node.gpu_type,
            Node.reserved_cpu_count,
            Node.reserved_memory_bytes,
        )
        .where(
            col(Node.status).in_(SHOWN),
            col(Node.host).is_not(None),
            Node.type != NodeType.EPHEMERAL,  # Its job holds all its resources.
        )
        .order_by(col(Node.id))
    )
    nodes = [tuple(row) for row in rows]
    prices = {gpu_type: _price(gpu_type, at) for gpu_type in {node[4] for node in nodes}}
    guests = _guest_gpus(nodes, regions, holds)
    regions = {
        region_id: (*row, is_open(row[8], at) if row[6] else True, guests.get(region_id, 0))
        for region_id, row in regions.items()
    }
    return _Snapshot(nodes, regions, holds, prices)


def _guest_gpus(nodes: list[_Row], regions: dict[str, _Row], holds: Held) -> dict[str, int]:
    """How many GPUs guests hold in each public region."""
    found: dict[str, int] = {}
    for node_id, _, _, region_id, *_ in nodes:
        public, owner_id = regions[region_id][6:8]
        if public:
            for account_id, gpus in holds.gpus_by_account.get(node_id, {}).items():
                if account_id != owner_id:
                    found[region_id] = found.get(region_id, 0) + gpus
    return found


def _offers_in(session: Session, snapshot: _Snapshot) -> list[NodeOffer]:
    """Build the node offers; read more rows only of nodes that have changed since the last time."""
    all_inputs = {node[0]: snapshot.inputs_of(node) for node in snapshot.nodes}
    found = {
        node_id: cached[1]
        for node_id, inputs in all_inputs.items()
        if (cached := _offers.get(node_id)) is not None and cached[0] == inputs
    }
    rows = _rows_of(session, [node_id for node_id in all_inputs if node_id not in found])
    facts = facts_of(session, [(row.id, row.sequence) for row in rows])
    if len(_offers) > _CACHED_NODES:
        _offers.clear()
    for row in rows:
        inputs = all_inputs[row.id]
        found[row.id] = _offer(row, facts[row.id], inputs)
        _offers[row.id] = (inputs, found[row.id])
    offers = (found[node_id] for node_id in all_inputs)
    return [offer for offer in offers if offer is not None]


def _rows_of(session: Session, node_ids: list[str]) -> list[Any]:
    columns = (
        Node.id,
        Node.sequence,
        Node.name,
        Node.account_id,
        Node.services,
        Node.cpu_count,
        Node.memory_bytes,
    )
    found: list[Any] = []
    for start in range(0, len(node_ids), _AT_ONCE):
        some = col(Node.id).in_(node_ids[start : start + _AT_ONCE])
        found += session.execute(select(*columns).where(some)).all()  # type: ignore[call-overload]
    return found


def held(session: Session) -> Held:
    """The resources that live allocations hold now."""
    found = Held(gpus={}, ports={}, disk_bytes={}, weights={}, reservations=_holders(session))
    for node_id, index in session.execute(
        select(GpuAllocation.node_id, GpuAllocation.gpu_index).where(
            col(GpuAllocation.released_at).is_(None)
        )
    ):
        found.gpus.setdefault(node_id, set()).add(index)
    disk = func.coalesce(col(Job.spec)["resources"]["disk_size_gb"].as_integer(), 0)
    for node_id, state, port, cpus, indices, project_id, account_id, disk_gb in session.execute(
        select(  # type: ignore[call-overload]
            Allocation.node_id,
            Allocation.state,
            Allocation.port,
            Allocation.cpu_count,
            Allocation.gpu_indices,
            Job.project_id,
            Job.account_id,
            disk,
        )
        .join(Job, col(Job.id) == Allocation.job_id)
        .where(col(Allocation.released_at).is_(None))
    ):
        if state != AllocationState.LEAVING:  # That one belongs to the node.
            added = weight(1, len(indices), cpus)
            for owner_id in (project_id, account_id):
                found.weights[owner_id] = found.weights.get(owner_id, 0) + added
        found.disk_bytes[node_id] = found.disk_bytes.get(node_id, 0) + disk_gb * GB
        if indices:
            by_account = found.gpus_by_account.setdefault(node_id, {})
            by_account[account_id] = by_account.get(account_id, 0) + len(indices)
        if port is not None:
            found.ports.setdefault(node_id, set()).add(port)
    return found


def _holders(session: Session) -> dict[str, str]:
    """The id of each reservation that a job holds, to a sentence that names both."""
    rows = session.execute(
        select(Reservation.id, Reservation.name, Job.id, Job.name)
        .join(Allocation, col(Allocation.reservation_id) == Reservation.id)
        .join(Job, col(Job.id) == Allocation.job_id)
        .where(is_of_job())
    )
    return {
        reservation_id: f"reservation {name}: job {job_name} ({job_id}) holds it"
        for reservation_id, name, job_id, job_name in rows
    }


def facts_of(session: Session, nodes: Iterable[tuple[str, int]]) -> dict[str, NodeFacts]:
    """The facts of these nodes (id, sequence), read once for each step of a node."""
    if len(_facts) > _CACHED_NODES:
        _facts.clear()
    found = {node_id: _facts.get((node_id, sequence)) for node_id, sequence in nodes}
    unread = [node_id for node_id, facts in found.items() if facts is None]
    columns = (Node.id, Node.sequence, Node.gpu_type, Node.hardware, Node.preparation)
    for start in range(0, len(unread), _AT_ONCE):
        some = col(Node.id).in_(unread[start : start + _AT_ONCE])
        for row in session.execute(select(*columns).where(some)):  # type: ignore[call-overload]
            found[row.id] = _facts[row.id, row.sequence] = _read(row)
    return {node_id: facts for node_id, facts in found.items() if facts is not None}


def _read(row: Any) -> NodeFacts:
    hardware = Hardware.model_validate(row.hardware or {"cpu_count": 0, "memory_bytes": 0})
    preparation = Preparation.model_validate(row.preparation or {})
    return NodeFacts(
        gpus=tuple(
            (gpu.index, gpu.uuid)
            for gpu in hardware.gpus
            if gpu_type_of_driver_name(gpu.name) == row.gpu_type
        ),
        free_disk_bytes=hardware.free_disk_bytes,
        disk_bytes=sum(disk.size_bytes for disk in hardware.disks),
        runtimes=hardware.runtimes,
        trusted_only=preparation.trusted_only_reason is not None,
        has_run_roots=preparation.no_run_root_reason is None,
        no_confinement_reason=preparation.no_confinement_reason,
        no_attestation_reason=preparation.no_attestation_reason,
        job_user=preparation.job_user,
    )


def _price(gpu_type: str | None, at: datetime) -> _Prices:
    """Microcredits for a GPU-hour and for a CPU-core-hour on an owned node of this GPU type, and
    for a GPU-hour of others; None: the type has no market price."""
    gpus = int(gpu_type is not None)
    rates = usage_rates(gpu_type, gpus, 1, at, settings().cpu_core_hour_microcredits)
    sold_at = None if gpu_type is None else market_price(gpu_type, at)
    return rates.microcredits_per_gpu_hour, rates.microcredits_per_cpu_core_hour, sold_at


def _offer(row: Any, facts: NodeFacts, inputs: _OfferInputs) -> NodeOffer | None:
    """The offer of a node; None when the node runs no jobs.

    It is one for all who look, with a price for the owner and, in public regions, one for others.
    """
    if "compute" not in row.services:
        return None
    node, region, (used, ports, disk_bytes), price = inputs
    _, _, status, region_id, gpu_type, reserved_cpu_count, reserved_memory_bytes = node
    (
        _, region_name, region_status, provider_id, provider_kind, allows_apt_packages, public, _,
        stored_policy, guests_now, guest_gpu_count,
    ) = region  # fmt: skip
    policy = GuestPolicy.model_validate(stored_policy or {}) if public else GuestPolicy()
    takes_guests = public and "podman" in facts.runtimes and facts.job_user is not None
    return NodeOffer(
        node_id=row.id,
        node_name=row.name,
        region_id=region_id,
        region_name=region_name,
        account_id=row.account_id,
        provider_id=provider_id,
        provider_kind=provider_kind,
        public=public,
        active=status == NodeStatus.ACTIVE and region_status == RegionStatus.HEALTHY,
        gpu_type=gpu_type,
        gpus=tuple(
            GpuSlot(index=index, uuid=uuid, free=index not in (used or ()))
            for index, uuid in facts.gpus
        ),
        cpu_count=row.cpu_count,
        free_cpu_count=row.cpu_count - reserved_cpu_count,
        memory_bytes=row.memory_bytes,
        free_memory_bytes=row.memory_bytes - reserved_memory_bytes,
        free_disk_bytes=facts.free_disk_bytes - (disk_bytes or 0),
        disk_bytes=facts.disk_bytes,
        used_ports=tuple(sorted(ports or ())),
        runtimes=facts.runtimes,
        trusted_only=facts.trusted_only,
        has_run_roots=facts.has_run_roots,
        no_confinement_reason=facts.no_confinement_reason,
        no_attestation_reason=facts.no_attestation_reason,
        allows_apt_packages=allows_apt_packages,
        microcredits_per_gpu_hour=price[0],
        microcredits_per_cpu_core_hour=price[1],
        market_microcredits_per_gpu_hour=price[2] if takes_guests else None,
        guest_policy=policy,
        guests_now=guests_now,
        guest_gpu_count=guest_gpu_count,
    )
