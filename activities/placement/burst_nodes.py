"""Burst nodes: each is created for one job, and written together with the job's allocation."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from activities.db.ids import new_id
from activities.db.tables import Job, Node, Region
from activities.nodes.creation import LeasedNode, add_leased_node
from activities.placement.allocations import ContendedError, write_allocations
from activities.settings import settings
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import run_id
from workflows.contracts.machines import MachineClaim
from workflows.contracts.placement import Burst, CloudOffer, PendingJob
from workflows.contracts.statuses import NodeType, ProviderKind, RegionStatus
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.placement.cloud_costs import machine_cap
from workflows.rules.placement.cloud_market import Market, spec_of
from workflows.rules.placement.cloud_refusals import being_made


def make_nodes(
    session: Session,
    bursts: Iterable[tuple[Burst, PendingJob]],
    market: Market,
    now: datetime,
) -> list[str]:
    """Add a node for each worker of these jobs, which the caller has locked.

    The job holds all resources of its nodes. Returns the ids of the outbox rows that start the
    nodes, to relay after the commit.
    Raises: ContendedError, when a region is not healthy any more; the caller must not commit.
    """
    taken = [(burst, job, market.offer(burst.offer_id)) for burst, job in bursts]
    if not taken:
        return []
    regions = _locked(session, {offer.region_id for _, _, offer in taken})
    requests: list[str] = []
    allocations: list[dict[str, Any]] = []
    for burst, job, offer in taken:
        image = _image_of(session, job, offer)
        for worker in range(job.demand.worker_count):
            of_worker = burst.of_worker(worker)
            own = market.offer(of_worker.offer_id)
            claim = _claim(of_worker, job, own, image)
            node, request = _add_node(session, regions[offer.region_id], (job, worker), claim, now)
            _fill(node, own, job)
            requests.append(request)
            allocations.append(_allocation(job, worker, node, own, now))
    values = [_job_values(*each) for each in taken]
    write_allocations(session, allocations, values, [job for _, job, _ in taken])
    return requests


def _locked(session: Session, region_ids: set[str]) -> dict[str, Region]:
    """The regions, if all are still healthy, locked so that none is removed before the commit."""
    query = (
        select(Region)
        .where(col(Region.id).in_(region_ids), Region.status == RegionStatus.HEALTHY)
        .order_by(col(Region.id))
        .with_for_update(read=True)
    )
    found = {region.id: region for region in session.exec(query)}
    if missing := sorted(region_ids - found.keys()):
        raise ContendedError(f"region {missing[0]}: is not healthy any more")
    return found


def _image_of(session: Session, job: PendingJob, offer: CloudOffer) -> str:
    """The image that a rented machine is; empty: the job names none, or its machine boots."""
    if not traits_of(offer.provider_kind).machine_is_image or not job.demand.needs_image:
        return ""
    submission = JobSubmission.model_validate(session.get_one(Job, job.job_id).spec)
    return submission.environment.image or ""


def _claim(burst: Burst, job: PendingJob, offer: CloudOffer, image: str) -> MachineClaim:
    demand = job.demand
    tags = {"region": offer.region_id, "project": job.project_id, "job": job.job_id}
    lifetime_s = settings().ephemeral_lifetime_s
    return MachineClaim(
        provider_id=offer.provider_id,
        provider_kind=ProviderKind(offer.provider_kind),
        offers=burst.zones,
        spec=spec_of(offer, demand, lifetime_s, tags).model_copy(update={"image": image}),
        price_cap_microcredits_per_hour=machine_cap(offer, demand),
    )


def _add_node(
    session: Session,
    region: Region,
    of: tuple[PendingJob, int],
    claim: MachineClaim,
    now: datetime,
) -> tuple[Node, str]:
    job, worker = of
    asked = LeasedNode(
        node_id=new_id("nod"),
        name=run_id(job.job_id, worker, job.attempt),
        type=NodeType.EPHEMERAL,
        services=("compute",),
        machine=claim,
    )
    return add_leased_node(session, region, asked, now)


def _fill(node: Node, offer: CloudOffer, job: PendingJob) -> None:
    """Write the expected resources of a node, until its inspection; the job holds all of them."""
    node.gpu_type, node.gpu_count = offer.gpu_type, offer.gpu_count
    node.cpu_count = node.reserved_cpu_count = offer.cpu_count
    node.memory_bytes = offer.memory_bytes
    node.reserved_memory_bytes = job.demand.memory_bytes


def _allocation(
    job: PendingJob, worker: int, node: Node, offer: CloudOffer, now: datetime
) -> dict[str, Any]:
    return {
        "id": new_id("alc"),
        "job_id": job.job_id,
        "worker": worker,
        "attempt": job.attempt,
        "node_id": node.id,
        "cpu_count": offer.cpu_count,
        "memory_bytes": job.demand.memory_bytes,
        "gpu_indices": list(range(offer.gpu_count)),
        "port": job.demand.port,
        "created_at": now,
    }


def _job_values(burst: Burst, job: PendingJob, offer: CloudOffer) -> dict[str, Any]:
    """The values of the job's row: its usage fee; the cost of the machine is in its lease."""
    refusal = being_made(offer, burst.zones, job.demand.worker_count)
    fee = offer.fee.model_dump(mode="json")
    return {
        "id": job.job_id,
        "rates": {str(worker): fee for worker in range(job.demand.worker_count)},
        "placement_refusals": [refusal.model_dump(mode="json")],
    }
