"""What runs now: rows, and beside them what nodes have measured lately."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlmodel import Session, col, select

from activities.billing.accrued import microcredits_per_hour_of
from activities.db import tables
from activities.placement.allocation_states import is_live
from api.authorization import Caller
from api.schemas import utilisation as schemas
from api.services.job_figures import JobFigures
from api.services.ownership import visible_jobs
from workflows.contracts.jobs import run_id
from workflows.contracts.nodes import Hardware
from workflows.contracts.statuses import JobStatus, NodeStatus
from workflows.contracts.utilisation import GpuUtilisation, NodeUtilisation

MOST_WORKERS = 200
MOST_NODES = 500
MIB = 1 << 20
_RUNS = (JobStatus.RUNNING, JobStatus.UNREACHABLE)


@dataclass(frozen=True)
class Running:
    """The rows of what runs, as one caller may see them, before anything measured is added."""

    at: datetime
    microcredits_per_hour: int
    jobs: list[tuple[tables.Job, int | None, int | None]]
    """Each job with its elapsed seconds and its microcredits per hour."""
    nodes: list[tables.Node]
    """The account's own nodes."""
    others: dict[str, str]
    """The names of all nodes that these jobs run on, by their ids."""
    held: dict[str, list[tables.Allocation]]
    """The live allocations on the account's own nodes, and those of these jobs, by node."""
    is_whole: bool

    @property
    def measured_nodes(self) -> set[str]:
        """The nodes that have anything to measure."""
        return {node_id for node_id, held in self.held.items() if held}


def what_runs(session: Session, caller: Caller) -> Running:
    """The jobs that run and the account's nodes, with one query for each kind of row."""
    rows = session.exec(
        select(tables.Job)
        .where(visible_jobs(session, caller), col(tables.Job.status).in_(_RUNS))
        .order_by(col(tables.Job.id).desc())
        .limit(MOST_WORKERS + 1)
    ).all()
    jobs = rows[:MOST_WORKERS]
    figures = JobFigures(session, caller, jobs)
    nodes = _own_nodes(session, caller)
    own = [node.id for node in nodes[:MOST_NODES]]
    query = select(tables.Allocation).where(
        is_live(),
        col(tables.Allocation.node_id).in_(own)
        | col(tables.Allocation.job_id).in_([job.id for job in jobs]),
    )
    held: dict[str, list[tables.Allocation]] = defaultdict(list)
    for allocation in session.exec(query):
        held[allocation.node_id].append(allocation)
    return Running(
        at=datetime.now(UTC),
        microcredits_per_hour=microcredits_per_hour_of(session, caller.account_id),
        jobs=[
            (job, figures.elapsed(job)[1], figures.accrued[job.id].microcredits_per_hour)
            for job in jobs
        ],
        nodes=nodes[:MOST_NODES],
        others=figures.node_names(),
        held=held,
        is_whole=len(rows) <= MOST_WORKERS and len(nodes) <= MOST_NODES,
    )


def _own_nodes(session: Session, caller: Caller) -> list[tables.Node]:
    if not caller.may("nodes:read"):
        return []
    query = select(tables.Node).where(
        tables.Node.account_id == caller.account_id,
        col(tables.Node.status) != NodeStatus.ARCHIVED,
    )
    return list(session.exec(query.order_by(col(tables.Node.id).desc()).limit(MOST_NODES + 1)))


def utilisation_response(
    running: Running, measured: Mapping[str, NodeUtilisation]
) -> schemas.Utilisation:
    """What runs, with what the nodes have measured.

    Of a node that is not the account's own, only what its own jobs hold is shown.
    """
    held_by = {
        (each.job_id, each.worker, each.attempt): each
        for allocations in running.held.values()
        for each in allocations
    }
    workers = [
        _worker(running, job, worker, held_by, measured)
        for job in running.jobs
        for worker in range(len(job[0].workers))
    ]
    return schemas.Utilisation(
        at=running.at,
        microcredits_per_hour=running.microcredits_per_hour,
        workers=workers[:MOST_WORKERS],
        nodes=[_node(node, running.held[node.id], measured.get(node.id)) for node in running.nodes],
        is_whole=running.is_whole and len(workers) <= MOST_WORKERS,
    )


def _worker(
    running: Running,
    job: tuple[tables.Job, int | None, int | None],
    index: int,
    held_by: Mapping[tuple[str, int, int], tables.Allocation],
    measured: Mapping[str, NodeUtilisation],
) -> schemas.RunningWorker:
    row, elapsed_s, per_hour = job
    assignment = row.workers[index].get("assignment") or {}
    node_id = (assignment.get("node") or {}).get("node_id")
    held = held_by.get((row.id, index, row.attempt))
    last = measured.get(node_id or "")
    of_run = {run.run_id: run for run in last.runs} if last else {}
    found = of_run.get(run_id(row.id, index, row.attempt))
    gpus = {gpu.uuid: gpu for gpu in last.gpus} if last else {}
    indices = assignment.get("gpu_indices") or ()
    return schemas.RunningWorker(
        job_id=row.id,
        job_name=row.name,
        worker=index,
        status=row.status,
        node_id=node_id,
        node_name=running.others.get(node_id or ""),
        elapsed_s=elapsed_s,
        cpu_count=held.cpu_count if held else 0,
        cpu_percent=found.cpu_percent if found else None,
        memory_limit_bytes=held.memory_bytes if held else 0,
        memory_bytes=found.memory_bytes if found else None,
        gpus=[
            _gpu(number, uuid, None, gpus.get(uuid), row.id)
            for number, uuid in zip(indices, assignment.get("gpu_uuids") or (), strict=False)
        ],
        microcredits_per_hour=per_hour,
        measured_at=last.at if last and found else None,
    )


def _node(
    row: tables.Node, held: Sequence[tables.Allocation], last: NodeUtilisation | None
) -> schemas.BusyNode:
    job_of = {index: each.job_id for each in held for index in each.gpu_indices}
    known = Hardware.model_validate(row.hardware).gpus if row.hardware else ()
    said = {gpu.uuid: gpu for gpu in last.gpus} if last else {}
    return schemas.BusyNode(
        node_id=row.id,
        name=row.name,
        status=row.status,
        worker_count=len(held),
        cpu_count=row.cpu_count,
        reserved_cpu_count=row.reserved_cpu_count,
        memory_bytes=row.memory_bytes,
        reserved_memory_bytes=row.reserved_memory_bytes,
        gpu_count=row.gpu_count,
        held_gpu_count=len(job_of),
        gpus=[
            _gpu(gpu.index, gpu.uuid, gpu.name, said.get(gpu.uuid), job_of[gpu.index])
            for gpu in known
            if gpu.index in job_of
        ],
        measured_at=last.at if last else None,
    )


def _gpu(
    index: int, uuid: str, name: str | None, said: GpuUtilisation | None, job_id: str
) -> schemas.Gpu:
    used, total = (said.memory_used_mib, said.memory_total_mib) if said else (None, None)
    return schemas.Gpu(
        index=index,
        uuid=uuid,
        name=name,
        percent=said.percent if said else None,
        memory_used_bytes=None if used is None else used * MIB,
        memory_total_bytes=None if total is None else total * MIB,
        job_id=job_id,
    )
