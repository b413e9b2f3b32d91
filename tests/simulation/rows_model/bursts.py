"""Burst nodes, each created for one job. As activities/placement/burst_nodes.py."""

from collections.abc import Sequence
from datetime import datetime

from activities.placement.allocations import ContendedError
from activities.placement.burst_nodes import _claim
from tests.simulation.rows_model.allocations import Allocations
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Allocation, Node, Region
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.jobs import run_id
from workflows.contracts.machines import MachineClaim
from workflows.contracts.placement import Burst, CloudOffer, PendingJob
from workflows.contracts.statuses import NodeType, RegionStatus
from workflows.rules.placement.cloud_market import Market
from workflows.rules.placement.cloud_refusals import being_made


class Bursts:
    def __init__(self, tables: Tables, outbox: Outbox, allocations: Allocations) -> None:
        self._tables = tables
        self._outbox = outbox
        self._allocations = allocations
        self.lifetime_s: int | None = None
        """Of the machines; None: as the settings say."""

    def make_nodes(
        self, bursts: Sequence[tuple[Burst, PendingJob]], market: Market, now: datetime
    ) -> list[str]:
        """Add a node for each worker, which the job holds as a whole; return the outbox rows.

        Raises: ContendedError, when a region is not healthy; the caller must not commit.
        """
        requests: list[str] = []
        for burst, job in bursts:
            offer = market.offer(burst.offer_id)
            region = self._tables.regions[offer.region_id]
            if region.status != RegionStatus.HEALTHY:
                raise ContendedError(f"region {region.name}: is not healthy any more")
            claim = self._claim(burst, job, offer)
            for worker in range(job.demand.worker_count):
                node = self._node(region, (job, worker), claim, now)
                requests.append(self._outbox.create(node))
                self._fill(node, offer, job)
                self._allocations.insert(self._allocation(job, worker, node, now))
            refusal = being_made(offer, burst.zones, job.demand.worker_count)
            self._tables.set(
                self._tables.jobs[job.job_id],
                rates=dict.fromkeys(range(job.demand.worker_count), offer.fee),
                placement_refusals=(refusal,),
            )
        return requests

    def _claim(self, burst: Burst, job: PendingJob, offer: CloudOffer) -> MachineClaim:
        claim = _claim(burst, job, offer, image="")
        if self.lifetime_s is None:
            return claim
        spec = claim.spec.model_copy(update={"lifetime_s": self.lifetime_s})
        return claim.model_copy(update={"spec": spec})

    def _node(
        self, region: Region, of: tuple[PendingJob, int], claim: MachineClaim, now: datetime
    ) -> Node:
        job, worker = of
        return leased_node(
            region,
            self._tables.new_id("nod"),
            run_id(job.job_id, worker, job.attempt),
            claim,
            now,
            type_=NodeType.EPHEMERAL,
        )

    def _fill(self, node: Node, offer: CloudOffer, job: PendingJob) -> None:
        self._tables.change(
            node,
            gpu_type=offer.gpu_type,
            gpu_count=offer.gpu_count,
            cpu_count=offer.cpu_count,
            reserved_cpu_count=offer.cpu_count,
            memory_bytes=offer.memory_bytes,
            reserved_memory_bytes=job.demand.memory_bytes,
        )

    def _allocation(self, job: PendingJob, worker: int, node: Node, now: datetime) -> Allocation:
        return Allocation(
            id=self._tables.new_id("alc"),
            job_id=job.job_id,
            worker=worker,
            attempt=job.attempt,
            node_id=node.id,
            cpu_count=node.cpu_count,
            memory_bytes=job.demand.memory_bytes,
            gpu_indices=tuple(range(node.gpu_count)),
            port=job.demand.port,
            created_at=now,
        )


def leased_node(
    region: Region,
    node_id: str,
    name: str,
    claim: MachineClaim,
    at: datetime,
    *,
    type_: NodeType,
    services: tuple[str, ...] = ("compute",),
) -> Node:
    """The row of a node whose machine is leased: activities/nodes/creation.py."""
    return Node(
        id=node_id,
        account_id=region.account_id,
        name=name,
        region_id=region.id,
        minion_id="",
        type=type_,
        services=services,
        machine=claim,
        created_at=at,
        updated_at=at,
    )
