"""Jobs and nodes for tests of placement."""

from collections.abc import Iterable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from workflows.contracts.placement import Demand, GpuSlot, NodeOffer, PendingDemand, PendingJob

GIB = 1024**3
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OWNER = "acc-owner"
OTHER = "acc-other"
THIRD = "acc-third"
MARKET_PRICE = 2_780_000


def offer(node_id: str = "n1", gpus: int = 0, free: int | None = None, **changes: Any) -> NodeOffer:
    """A node of the owner's with so many A100, the first `free` of them free (all, if None)."""
    unused = gpus if free is None else free
    made: dict[str, Any] = {
        "node_id": node_id,
        "node_name": node_id,
        "region_id": "reg-1",
        "region_name": "home",
        "provider_kind": "physical",
        "account_id": OWNER,
        "gpu_type": "A100" if gpus else None,
        "gpus": tuple(
            GpuSlot(index=i, uuid=f"{node_id}-{i}", free=i < unused) for i in range(gpus)
        ),
        "cpu_count": 16,
        "free_cpu_count": 16,
        "memory_bytes": 64 * GIB,
        "free_memory_bytes": 64 * GIB,
        "free_disk_bytes": 1000**4,
    }
    return NodeOffer(**(made | changes))


def job(job_id: str = "job-1", gpus: int = 0, age_s: float = 0, **changes: Any) -> PendingJob:
    """A job of the owner's asking for so many A100 a worker, submitted `age_s` before NOW."""
    asked: dict[str, Any] = {
        "account_id": OWNER,
        "gpu_types": ("A100",) if gpus else (),
        "gpu_count": gpus,
        "cpu_count": 1,
    }
    names = ({field.name for field in fields(Demand)} - {"project_id"}) & changes.keys()
    asked |= {name: changes.pop(name) for name in names}
    made: dict[str, Any] = {
        "job_id": job_id,
        "project_id": "prj-1",
        "waiting_since": NOW - timedelta(seconds=age_s),
        "attempt": 1,
        "demand": Demand(**asked),
    }
    return PendingJob(**(made | changes))


def public(node_id: str = "n1", gpus: int = 1, **changes: Any) -> NodeOffer:
    """A node of another account in a public region, which runs containers."""
    made: dict[str, Any] = {
        "account_id": OTHER,
        "public": True,
        "runtimes": ("process", "podman"),
        "market_microcredits_per_gpu_hour": MARKET_PRICE,
    }
    return offer(node_id, gpus, **(made | changes))


def guest(job_id: str = "job-1", gpus: int = 1, **changes: Any) -> PendingJob:
    """A job of the owner's in a container, which may run on other accounts' nodes."""
    return job(job_id, gpus, **({"needs_image": True} | changes))


def by_demand(jobs: Iterable[PendingJob]) -> list[PendingDemand]:
    """The jobs as the queue hands them to a planning round."""
    found: dict[tuple[str, int, Demand], list[PendingJob]] = {}
    for each in jobs:
        found.setdefault((each.project_id, each.priority, each.demand), []).append(each)
    return [
        PendingDemand(
            project_id=project_id,
            demand_key=key_of(demand),
            priority=priority,
            demand=demand,
            jobs=sorted(alike, key=lambda one: (one.waiting_since, one.job_id)),
        )
        for (project_id, priority, demand), alike in found.items()
    ]


def key_of(demand: Demand) -> str:
    return repr(demand)
