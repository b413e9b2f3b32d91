"""Rows to start from: an account with its project, a place with nodes, jobs."""

from datetime import UTC, datetime

from sqlmodel import Session

from activities.accounts.accounts import add_account
from activities.db import tables
from activities.db.ids import new_id
from workflows.contracts.job_submission import JobSubmission, SubmittedResources, SubmittedWorker
from workflows.contracts.statuses import JobType

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GIB = 1024**3


def add_payer(session: Session, name: str = "acme") -> tables.Account:
    account, _ = add_account(session, name, f"{name}@example.test", NOW)
    return account


def add_region(session: Session, account: tables.Account) -> tables.Region:
    provider = tables.Provider(
        id=new_id("prv"),
        account_id=account.id,
        name="machines",
        status="ready",
        kind="physical",
        checks=[],
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(provider)
    session.flush()
    region = tables.Region(
        id=new_id("reg"),
        account_id=account.id,
        name="home",
        status="healthy",
        provider_id=provider.id,
        provider_kind="physical",
        relaxed_requirements=[],
        options={},
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(region)
    session.flush()
    return region


def add_node(session: Session, region: tables.Region, name: str = "n1") -> tables.Node:
    node = tables.Node(
        id=new_id("nod"),
        account_id=region.account_id,
        region_id=region.id,
        name=name,
        status="active",
        minion_id=f"SHA256:{new_id('key')}",
        services=["compute"],
        host="127.0.0.1",
        requirements=[],
        gpu_type="A100",
        gpu_count=4,
        cpu_count=16,
        memory_bytes=64 * GIB,
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(node)
    session.flush()
    return node


def add_job(session: Session, account: tables.Account, workers: int = 1) -> tables.Job:
    submission = JobSubmission(
        name="digits",
        type=JobType.TRAINING,
        resources=SubmittedResources(gpus="A100:1", cpu_count=2, memory_gib=4),
        workers=tuple(SubmittedWorker(command="true") for _ in range(workers)),
    )
    job = tables.Job(
        id=new_id("job"),
        account_id=account.id,
        name="digits",
        project_id=account.personal_project_id,
        type="training",
        spec=submission.model_dump(mode="json"),
        workers=[],
        placement_refusals=[],
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(job)
    session.flush()
    return job


def allocate(session: Session, job: tables.Job, node: tables.Node, gpu: int) -> tables.Allocation:
    """Two CPUs, four GiB and one GPU of the node, for the job's first worker."""
    allocation = tables.Allocation(
        id=new_id("alc"),
        job_id=job.id,
        worker=0,
        attempt=job.attempt,
        node_id=node.id,
        cpu_count=2,
        memory_bytes=4 * GIB,
        gpu_indices=[gpu],
        created_at=NOW,
    )
    session.add(allocation)
    session.flush()
    session.add(tables.GpuAllocation(allocation_id=allocation.id, gpu_index=gpu, node_id=node.id))
    row = session.get_one(tables.Node, node.id)
    row.reserved_cpu_count += 2
    row.reserved_memory_bytes += 4 * GIB
    session.flush()
    return allocation
