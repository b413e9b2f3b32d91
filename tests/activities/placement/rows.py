"""Nodes with GPUs and jobs of any size; a planning round; what the rows say afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, event, func, insert
from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.placement.planning import plan_placements
from activities.placement.refusals import refusals_of_jobs
from tests.activities.rows import GIB, NOW, add_node
from workflows.contracts.job_submission import (
    JobSubmission,
    SubmittedEnvironment,
    SubmittedPlacement,
    SubmittedResources,
    SubmittedWorker,
)
from workflows.contracts.nodes import Gpu, Hardware
from workflows.contracts.placement import PlanningRound
from workflows.contracts.regions import GuestPolicy
from workflows.contracts.statuses import JobType
from workflows.effects.placement import PlanPlacements
from workflows.rules.jobs.resources import demand_key


def add_gpu_node(
    session: Session, region: tables.Region, name: str = "n1", gpus: int = 4, cpus: int = 16
) -> tables.Node:
    """An active node of the region with so many A100."""
    node = add_node(session, region, name)
    hardware = Hardware(
        cpu_count=cpus,
        memory_bytes=64 * GIB,
        free_disk_bytes=1000**4,
        gpus=tuple(
            Gpu(index=index, name="NVIDIA A100-SXM4-40GB", uuid=f"GPU-{name}-{index}")
            for index in range(gpus)
        ),
    )
    node.hardware = hardware.model_dump(mode="json")
    node.gpu_type = "A100" if gpus else None
    node.gpu_count = gpus
    node.cpu_count = cpus
    session.flush()
    return node


def add_waiting_job(
    session: Session, account: tables.Account, gpus: int = 1, workers: int = 1, **changes: Any
) -> tables.Job:
    """A job of the account's personal project that waits for so many A100 a worker, or GPUs of
    `gpu_type`."""
    created_at: datetime = changes.pop("created_at", NOW)
    placement = changes.pop("placement", SubmittedPlacement())
    gpu_type = changes.pop("gpu_type", "A100")
    submission = JobSubmission(
        name="digits",
        type=JobType.TRAINING,
        resources=SubmittedResources(
            gpus=f"{gpu_type}:{gpus}" if gpus else "cpu", cpu_count=2, memory_gib=4
        ),
        workers=tuple(SubmittedWorker(command="true") for _ in range(workers)),
        placement=placement,
        **changes,
    )
    job = tables.Job(
        id=new_id("job"),
        account_id=account.id,
        name="digits",
        project_id=account.personal_project_id,
        type="training",
        status="waiting_for_resources",
        priority=submission.priority,
        spec=submission.model_dump(mode="json"),
        workers=[],
        demand_key=demand_key(submission, account.id),
        waiting_since=created_at,
        placement_refusals=[],
        created_at=created_at,
        updated_at=NOW,
    )
    session.add(job)
    session.flush()
    return job


def live(session: Session) -> list[tables.Allocation]:
    """Allocations that hold something, by job and worker."""
    return list(
        session.exec(
            select(tables.Allocation)
            .where(col(tables.Allocation.released_at).is_(None))
            .order_by(col(tables.Allocation.job_id), col(tables.Allocation.worker))
        )
    )


def assert_books_agree(session: Session) -> None:
    """No GPU is held twice, no node holds more than it has, its counters say what is held."""
    gpus = session.execute(
        select(tables.GpuAllocation.node_id, tables.GpuAllocation.gpu_index).where(
            col(tables.GpuAllocation.released_at).is_(None)
        )
    ).all()
    assert len(gpus) == len({tuple(row) for row in gpus})
    for node in session.exec(select(tables.Node)):
        cpus, memory = session.execute(
            select(
                func.coalesce(func.sum(tables.Allocation.cpu_count), 0),
                func.coalesce(func.sum(tables.Allocation.memory_bytes), 0),
            ).where(
                tables.Allocation.node_id == node.id,
                col(tables.Allocation.released_at).is_(None),
            )
        ).one()
        assert (node.reserved_cpu_count, node.reserved_memory_bytes) == (cpus, memory)
        assert node.reserved_cpu_count <= node.cpu_count
        assert sum(1 for row in gpus if row[0] == node.id) <= node.gpu_count


def round_of(limit: int = 500) -> PlanningRound:
    return plan_placements(PlanPlacements(limit=limit))


def refusals(migrated: Database, job: tables.Job) -> list[tuple[str, str]]:
    with migrated.read() as session:
        told = refusals_of_jobs(session, [session.get_one(tables.Job, job.id)])[job.id]
    return [(refusal["code"], refusal["detail"]) for refusal in told]


def copies(session: Session, job: tables.Job, count: int, later_s: int = 0) -> None:
    """Add so many jobs like this one, each submitted `later_s` after the one before."""
    values = job.model_dump()
    session.execute(
        insert(tables.Job),
        [
            values
            | {
                "id": f"{job.id}-{number:05}",
                "waiting_since": job.created_at + timedelta(seconds=later_s * (number + 1)),
            }
            for number in range(count)
        ],
    )


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every SQL statement that this process sends."""
    seen: list[str] = []

    def note(*arguments: object) -> None:
        seen.append(str(arguments[2]).lstrip())

    event.listen(Engine, "before_cursor_execute", note)
    yield seen
    event.remove(Engine, "before_cursor_execute", note)


IMAGE = SubmittedEnvironment(image="docker.io/library/python@sha256:" + "0" * 64)


@dataclass(frozen=True)
class Public:
    """A public region with one node, the account that owns it, and another one with credits."""

    owner: tables.Account
    region: tables.Region
    node: tables.Node
    customer: tables.Account


def under(database: Database, public: Public, **policy: Any) -> None:
    """Let the public region have this policy of its guests."""
    with database.write() as session:
        stored = GuestPolicy(**policy).model_dump(mode="json")
        session.get_one(tables.Region, public.region.id).guest_policy = stored
