"""What placement sees of rows: the offers of nodes, what is held, the queue, the cloud market.

As activities/placement/inventory.py, queue.py and cloud_market.py, whose pure parts are called. An
offer is built anew when the columns have changed from which it is built.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from activities.billing.payers import credits_name
from activities.placement.cloud_market import _fees, _inputs_of, _Seller, _sold
from activities.placement.inventory import SHOWN, NodeFacts, _offer, _price, _read
from activities.providers.prices import Version, catalogue_of
from tests.simulation.rows_model.guests import reserved
from tests.simulation.rows_model.ledger import Ledger
from tests.simulation.rows_model.records import Job, Node, Region
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.machines import Shortage
from workflows.contracts.placement import (
    GB,
    Demand,
    NodeOffer,
    PendingDemand,
    PendingJob,
)
from workflows.contracts.statuses import NodeType, ProviderStatus, RegionStatus
from workflows.rules.catalogue.providers import cloud_kinds
from workflows.rules.jobs.artifacts import volumes_of
from workflows.rules.jobs.resources import demand_of
from workflows.rules.placement.cloud_market import CloudOffers, Market
from workflows.rules.placement.fair_share import weight
from workflows.rules.placement.volumes import VolumeHolder

PRICES: Version = (0, None)
"""The version of the prices, which in the model are always those of the files."""


@dataclass(frozen=True)
class _MarketRow:
    """The columns of activities/placement/cloud_market.py:_regions."""

    id: str
    name: str
    account_id: str
    cloud_region: str | None
    provider_id: str
    provider_kind: str
    fee_waived: bool


@dataclass
class Held:
    """As activities/placement/inventory.py:Held."""

    gpus: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    ports: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    disk_bytes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    weights: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass
class Queue:
    """As activities/placement/queue.py:Queue."""

    demands: list[PendingDemand] = field(default_factory=list)
    job_count: int = 0
    read: dict[str, PendingJob] = field(default_factory=dict)


class PlacementInventory:
    def __init__(self, tables: Tables, ledger: Ledger) -> None:
        self._tables = tables
        self._ledger = ledger
        self._facts: dict[str, tuple[int, str | None, NodeFacts]] = {}
        self._offers: dict[str, tuple[object, NodeOffer | None]] = {}
        self._sellers: dict[str, _Seller] = {}
        self._sold: tuple[tuple[object, ...], CloudOffers] = ((), CloudOffers(()))
        self._demands: dict[tuple[str, frozenset[str], bool], Demand] = {}

    # ── nodes ───────────────────────────────────────────────────────────────────────────────

    def held(self) -> Held:
        """What live allocations hold: inventory.py:held."""
        tables, found = self._tables, Held()
        for node_id, index in tables.gpu_holders:
            found.gpus[node_id].add(index)
        for node_id, port in tables.port_holders:
            found.ports[node_id].add(port)
        for node_id, live in tables.live_on.items():
            for row in live.values():
                job = tables.jobs[row.job_id]
                found.disk_bytes[node_id] += job.spec.resources.disk_size_gb * GB
                if row.is_of_job:
                    added = weight(1, len(row.gpu_indices), row.cpu_count)
                    found.weights[job.project_id] += added
                    found.weights[job.account_id] += added
        return found

    def node_offers(self, at: datetime, held: Held) -> dict[str, NodeOffer]:
        """The offers of nodes that a job may wait for, by id: inventory.py:node_offers."""
        nodes = sorted(self._tables.open["node"])
        offers = {
            node_id: self._offer_of(self._tables.nodes[node_id], at, held) for node_id in nodes
        }
        return {node_id: offer for node_id, offer in offers.items() if offer is not None}

    def _offer_of(self, node: Node, at: datetime, held: Held) -> NodeOffer | None:
        if node.status not in SHOWN or node.host is None or node.type == NodeType.EPHEMERAL:
            return None
        region = self._tables.regions[node.region_id]
        used = held.gpus.get(node.id), held.ports.get(node.id), held.disk_bytes.get(node.id)
        columns = (
            node.id,
            node.sequence,
            node.status,
            node.region_id,
            node.gpu_type,
            node.reserved_cpu_count,
            node.reserved_memory_bytes,
        )
        inputs: Any = (columns, _columns_of(region), used, _price(node.gpu_type, at))
        known = self._offers.get(node.id)
        if known is None or known[0] != inputs:
            known = inputs, _offer(node, self.facts(node), inputs)
            self._offers[node.id] = known
        return known[1]

    def facts(self, node: Node) -> NodeFacts:
        """As inventory.py:facts_of, read once for each step of a node."""
        known = self._facts.get(node.id)
        if known is None or known[:2] != (node.sequence, node.gpu_type):
            known = node.sequence, node.gpu_type, _read(node)
            self._facts[node.id] = known
        return known[2]

    # ── jobs ────────────────────────────────────────────────────────────────────────────────

    def is_waiting(self, job: Job) -> bool:
        """Whether it waits and its attempt has no allocation: queue.py:is_waiting."""
        if job.id not in self._tables.waiting_jobs:
            return False
        workers = range(len(job.spec.workers))
        found = self._tables.allocation_of
        return not any((job.id, worker, job.attempt) in found for worker in workers)

    def queue(self, gpu_types: Iterable[str], now: datetime) -> Queue:
        """The demands of all jobs that wait: queue.py:waiting_queue."""
        known, queue = frozenset(gpu_types), Queue()
        groups: dict[tuple[str, int, str], list[Job]] = defaultdict(list)
        for job in self._tables.waiting_jobs.values():
            if self.is_waiting(job):
                groups[job.project_id, job.priority, job.demand_key].append(job)
                queue.job_count += 1
        for (project_id, priority, key), jobs in groups.items():
            jobs.sort(key=lambda job: (job.waiting_since, job.id))
            demand = self._demand_of(jobs[0], known, now)
            pending = [
                PendingJob(
                    job_id=job.id,
                    project_id=project_id,
                    priority=priority,
                    waiting_since=job.waiting_since,
                    attempt=job.attempt,
                    demand=demand,
                    name=job.name,
                )
                for job in jobs
            ]
            queue.read.update((job.job_id, job) for job in pending)
            queue.demands.append(
                PendingDemand(
                    project_id=project_id,
                    demand_key=key,
                    priority=priority,
                    demand=demand,
                    jobs=pending,
                )
            )
        return queue

    def volume_holders(self) -> dict[str, tuple[VolumeHolder, ...]]:
        """As volume_holds.py:volume_holders, of all volumes."""
        return {
            volume_id: tuple(self._holder(row.job_id, volume_id) for row in rows.values())
            for volume_id, rows in self._tables.volume_holders.items()
        }

    def _holder(self, job_id: str, volume_id: str) -> VolumeHolder:
        job = self._tables.jobs[job_id]
        return VolumeHolder(job_id, job.name, dict(volumes_of(job.spec))[volume_id])

    def _demand_of(self, job: Job, known_gpu_types: frozenset[str], now: datetime) -> Demand:
        balance = self._ledger.balance(credits_name(job.account_id))
        has_credits = balance > reserved(self._tables, job.account_id, now)
        key = job.demand_key, known_gpu_types, has_credits
        if key not in self._demands:
            demand = demand_of(job.spec, job.account_id, known_gpu_types)
            self._demands[key] = replace(demand, has_credits=has_credits)
        return self._demands[key]

    # ── clouds ──────────────────────────────────────────────────────────────────────────────

    def market(self, at: datetime) -> Market:
        """As cloud_market.py:market; no provider of the model has preferred credits."""
        regions = self._cloud_regions()
        if not regions:
            return Market(CloudOffers(()))
        nobody: frozenset[str] = frozenset()
        inputs = tuple(
            _inputs_of(row, self._seller(row.provider_kind, at), nobody) for row in regions
        )
        if inputs != self._sold[0]:
            made = CloudOffers(
                offer
                for each in inputs
                for offer in _sold(each, self._seller(each.provider_kind, at).catalogue)
            )
            self._sold = inputs, made
        providers = {row.provider_id for row in regions}
        return Market(self._sold[1], self._shortages(providers, at), nobody)

    def _cloud_regions(self) -> list[_MarketRow]:
        tables = self._tables
        return [
            _MarketRow(
                id=region.id,
                name=region.name,
                account_id=region.account_id,
                cloud_region=region.cloud_region,
                provider_id=region.provider_id,
                provider_kind=region.provider_kind,
                fee_waived=tables.providers[region.provider_id].fee_waived,
            )
            for region in sorted(
                tables.open["region"].values(), key=lambda row: cast("str", row.id)
            )
            if region.status == RegionStatus.HEALTHY
            and tables.providers[region.provider_id].status == ProviderStatus.READY
            and region.provider_kind in cloud_kinds()
        ]

    def _seller(self, kind: str, at: datetime) -> _Seller:
        if kind not in self._sellers:
            self._sellers[kind] = _Seller(_fees(kind, at), PRICES, catalogue_of(kind))
        return self._sellers[kind]

    def _shortages(self, providers: set[str], at: datetime) -> dict[tuple[str, str], Shortage]:
        return {
            key: shortage
            for key, shortage in self._tables.shortages.items()
            if key[0] in providers and shortage.until > at
        }


def _columns_of(region: Region) -> tuple[Any, ...]:
    return (
        region.id,
        region.name,
        region.status,
        region.provider_id,
        region.provider_kind,
        region.allows_apt_packages,
        region.public,
        region.account_id,
        None,  # The guest policy,
        True,  # that guests may come at this hour,
        0,  # and the GPUs that guests hold: no region of the model is public.
    )
