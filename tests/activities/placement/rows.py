"""Nodes with GPUs and jobs of any size, for tests of placing; what the rows say afterwards."""

from datetime import datetime
from typing import Any

from sqlalchemy import func
from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from tests.activities.rows import GIB, NOW, add_node
from workflows.contracts.job_submission import (
    JobSubmission,
    SubmittedPlacement,
    SubmittedResources,
    SubmittedWorker,
)
from workflows.contracts.nodes import Gpu, Hardware
from workflows.contracts.statuses import JobType


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
    """A job of the account's personal project that waits for so many A100 a worker."""
    created_at: datetime = changes.pop("created_at", NOW)
    placement = changes.pop("placement", SubmittedPlacement())
    submission = JobSubmission(
        name="digits",
        type=JobType.TRAINING,
        resources=SubmittedResources(
            gpus=f"A100:{gpus}" if gpus else "cpu", cpu_count=2, memory_gib=4
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
