"""What placement looks at, read from the rows: nodes with what is free, what is held.

A handful of queries whatever the number of jobs and nodes. What inspection found on a node changes
only with the node's own steps, so each process remembers it by the node's sequence.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from activities.db.tables import Allocation, GpuAllocation, Job, Node, Region
from activities.settings import settings
from workflows.contracts.nodes import Hardware, Preparation
from workflows.contracts.placement import GB, GpuSlot, NodeOffer
from workflows.contracts.statuses import NodeStatus, NodeType, RegionStatus
from workflows.rules.billing.usage_fees import usage_rates
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name
from workflows.rules.placement.inventory import Inventory
from workflows.rules.placement.planner import weight

SHOWN = (NodeStatus.ACTIVE, NodeStatus.MAINTENANCE, NodeStatus.OFFLINE)
"""Nodes that a job may wait for. Others have not been inspected, or will not come back."""
_REMEMBERED_NODES = 20_000
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What inspection and preparation found, as far as placement asks."""

    gpus: tuple[tuple[int, str], ...]
    """Index and uuid of those of the node's type."""
    free_disk_bytes: int
    runtimes: tuple[str, ...]
    trusted_only: bool
    job_user: str | None


@dataclass(slots=True)
class Held:
    """What live allocations hold, by node and by project."""

    gpus: dict[str, set[int]]
    ports: dict[str, set[int]]
    disk_bytes: dict[str, int]
    weights: dict[str, int]


_Row = tuple[Any, ...]
_HeldThere = tuple[set[int] | None, set[int] | None, int | None]
_Standing = tuple[_Row, _Row, _HeldThere, tuple[int, int]]
"""A node's row, its region's, what is held there (GPUs, ports, disk), its prices: plain tuples,
since ten thousand of them are compared for one answer."""


@dataclass(frozen=True, slots=True)
class _Sight:
    """All that offers are made of, beside what changes only with a step of the node."""

    nodes: list[_Row]
    regions: dict[str, _Row]
    holds: Held
    prices: dict[str | None, tuple[int, int]]

    def standing(self, node: _Row) -> _Standing:
        node_id, _, _, region_id, gpu_type, _, _ = node
        holds = self.holds
        there = holds.gpus.get(node_id), holds.ports.get(node_id), holds.disk_bytes.get(node_id)
        return node, self.regions[region_id], there, self.prices[gpu_type]


_facts: dict[tuple[str, int], NodeFacts] = {}
_offers: dict[str, tuple[_Standing, NodeOffer | None]] = {}
_seen: tuple[_Sight | None, Sequence[NodeOffer]] = (None, ())
_inventory: tuple[Sequence[NodeOffer], Inventory] = ((), Inventory(()))


def node_offers(session: Session, at: datetime, known: Held | None = None) -> Sequence[NodeOffer]:
    """Every node that a job may wait for, with what is free of it now; by id.

    known: what is held, where the caller has read it. The same object as before, unless something
    has changed.
    """
    global _seen  # noqa: PLW0603 - one for each process
    sight = _look(session, at, known or held(session))
    before, offers = _seen
    if sight != before:
        offers = _offers_in(session, sight)
        _seen = (sight, offers)
    return offers


def inventory(session: Session, at: datetime) -> Inventory:
    """All of `node_offers` as the rules look at it, to be read and not taken from."""
    global _inventory  # noqa: PLW0603 - one for each process
    offers = node_offers(session, at)
    before, made = _inventory
    if offers is not before:
        made = Inventory(offers)
        _inventory = (offers, made)
    return made


def _look(session: Session, at: datetime, holds: Held) -> _Sight:
    columns = (Region.id, Region.name, Region.status, Region.provider_id, Region.provider_kind)
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
            Node.type != NodeType.EPHEMERAL,  # its job has all of it
        )
        .order_by(col(Node.id))
    )
    nodes = [tuple(row) for row in rows]
    prices = {gpu_type: _price(gpu_type, at) for gpu_type in {node[4] for node in nodes}}
    return _Sight(nodes, regions, holds, prices)


def _offers_in(session: Session, sight: _Sight) -> list[NodeOffer]:
    """Read more only of those nodes that do not stand as they stood the last time."""
    standings = {node[0]: sight.standing(node) for node in sight.nodes}
    found = {
        node_id: remembered[1]
        for node_id, standing in standings.items()
        if (remembered := _offers.get(node_id)) is not None and remembered[0] == standing
    }
    rows = _rows_of(session, [node_id for node_id in standings if node_id not in found])
    facts = facts_of(session, [(row.id, row.sequence) for row in rows])
    if len(_offers) > _REMEMBERED_NODES:
        _offers.clear()
    for row in rows:
        standing = standings[row.id]
        found[row.id] = _offer(row, facts[row.id], standing)
        _offers[row.id] = (standing, found[row.id])
    offers = (found[node_id] for node_id in standings)
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
    """What live allocations hold now."""
    found = Held(gpus={}, ports={}, disk_bytes={}, weights={})
    for node_id, index in session.execute(
        select(GpuAllocation.node_id, GpuAllocation.gpu_index).where(
            col(GpuAllocation.released_at).is_(None)
        )
    ):
        found.gpus.setdefault(node_id, set()).add(index)
    disk = func.coalesce(col(Job.spec)["resources"]["disk_size_gb"].as_integer(), 0)
    for node_id, port, cpus, indices, project_id, disk_gb in session.execute(
        select(  # type: ignore[call-overload]
            Allocation.node_id,
            Allocation.port,
            Allocation.cpu_count,
            Allocation.gpu_indices,
            Job.project_id,
            disk,
        )
        .join(Job, col(Job.id) == Allocation.job_id)
        .where(col(Allocation.released_at).is_(None))
    ):
        added = weight(1, len(indices), cpus)
        found.weights[project_id] = found.weights.get(project_id, 0) + added
        found.disk_bytes[node_id] = found.disk_bytes.get(node_id, 0) + disk_gb * GB
        if port is not None:
            found.ports.setdefault(node_id, set()).add(port)
    return found


def facts_of(session: Session, nodes: Iterable[tuple[str, int]]) -> dict[str, NodeFacts]:
    """What was found on these nodes (id, sequence); read once for each of their steps."""
    if len(_facts) > _REMEMBERED_NODES:
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
        runtimes=hardware.runtimes,
        trusted_only=preparation.trusted_only_reason is not None,
        job_user=preparation.job_user,
    )


def _price(gpu_type: str | None, at: datetime) -> tuple[int, int]:
    """Microcredits for a GPU-hour and for a CPU-core-hour on such an own node."""
    gpus = int(gpu_type is not None)
    rates = usage_rates(gpu_type, gpus, 1, at, settings().cpu_core_hour_microcredits)
    return rates.microcredits_per_gpu_hour, rates.microcredits_per_cpu_core_hour


def _offer(row: Any, facts: NodeFacts, standing: _Standing) -> NodeOffer | None:
    """A node as its owner sees it; None where it takes no jobs.

    To others a public region's capacity is sold at the market price. There is none yet, and what
    has no market price is not sold, so nobody else sees the node.
    """
    if "compute" not in row.services:
        return None
    stands, region, (used, ports, disk_bytes), price = standing
    _, _, status, region_id, gpu_type, reserved_cpu_count, reserved_memory_bytes = stands
    _, region_name, region_status, provider_id, provider_kind = region
    return NodeOffer(
        node_id=row.id,
        node_name=row.name,
        region_id=region_id,
        region_name=region_name,
        account_id=row.account_id,
        provider_id=provider_id,
        provider_kind=provider_kind,
        public=False,
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
        used_ports=tuple(sorted(ports or ())),
        runtimes=facts.runtimes,
        trusted_only=facts.trusted_only,
        microcredits_per_gpu_hour=price[0],
        microcredits_per_cpu_core_hour=price[1],
    )
