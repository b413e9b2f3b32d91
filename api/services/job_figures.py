"""What the responses of several jobs need beside their rows, with one query for each kind of it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session, col, select

from activities.billing.accrued import accrued_of
from activities.billing.machine_costs import costs_of_jobs
from activities.db import tables
from activities.placement.refusals import refusals_of_jobs
from api.authorization import Caller
from api.schemas import jobs as schemas
from api.services.people import People
from workflows.contracts.artifacts import ArtifactRole
from workflows.contracts.statuses import JobStatus, WorkerStatus

_RUNS = (JobStatus.RUNNING, JobStatus.UNREACHABLE)


class JobFigures:
    """The refusals, costs, inputs, nodes and people of some jobs, as one caller may see them."""

    def __init__(self, session: Session, caller: Caller, rows: Sequence[tables.Job]) -> None:
        self._now = datetime.now(UTC)
        self.caller = caller
        self._nodes = _nodes_of(session, rows)
        self.refusals = refusals_of_jobs(session, rows)
        self.inputs = _inputs_of(session, rows)
        """By the ids of jobs, the artifact whose files are the input."""
        self.accrued = accrued_of(session, rows, self._now)
        self.machine_costs = costs_of_jobs(session, rows, self._now)
        self.people = People(session, caller, [row.status_reason for row in rows])

    def node_names(self) -> dict[str, str]:
        """The names of the nodes of all these jobs, by their ids."""
        return {node_id: name for node_id, (name, _) in self._nodes.items()}

    def elapsed(self, row: tables.Job) -> tuple[datetime | None, int | None]:
        """When the attempt has started, and the seconds from then until now, or until its end."""
        began = [_instant(worker["started_at"]) for worker in row.workers if _has_started(worker)]
        if not began:
            return None, None
        started_at = min(began)
        return started_at, max(0, int((self._until(row) - started_at).total_seconds()))

    def _until(self, row: tables.Job) -> datetime:
        if row.status in _RUNS:
            return self._now
        ends = [_instant(each["finished_at"]) for each in row.workers if each.get("finished_at")]
        return max(ends, default=row.updated_at)

    def worker(
        self, row: tables.Job, worker: dict[str, Any], port: int | None
    ) -> schemas.JobWorker:
        """The response of one worker."""
        assignment = worker.get("assignment") or {}
        ended = worker.get("exit") or {}
        node_id = (assignment.get("node") or {}).get("node_id")
        name, host = self._nodes.get(node_id or "", (None, None))
        serves = port and host and row.status in _RUNS and worker["status"] == WorkerStatus.RUNNING
        return schemas.JobWorker(
            index=worker["index"],
            status=worker["status"],
            node_id=node_id,
            node_name=name,
            address=_address(host or "", port or 0) if serves else None,
            lease_id=assignment.get("lease_id"),
            gpu_uuids=list(assignment.get("gpu_uuids") or ()),
            exit_code=ended.get("exit_code"),
            signal=ended.get("signal"),
            reason=ended.get("reason"),
            elapsed_s=worker.get("elapsed_s") or 0.0,
            started_at=worker.get("started_at"),
            finished_at=worker.get("finished_at"),
        )


def _inputs_of(session: Session, rows: Sequence[tables.Job]) -> dict[str, str]:
    with_input = [row.id for row in rows if (row.spec.get("data") or {}).get("input")]
    if not with_input:
        return {}
    query = select(tables.ArtifactUse.job_id, tables.ArtifactUse.artifact_id).where(
        col(tables.ArtifactUse.job_id).in_(with_input),
        tables.ArtifactUse.role == ArtifactRole.INPUT.value,
    )
    return dict(session.exec(query).all())


def _nodes_of(session: Session, rows: Sequence[tables.Job]) -> dict[str, tuple[str, str | None]]:
    """The names and hosts of the nodes of these jobs, by their ids."""
    ids = {
        ((worker.get("assignment") or {}).get("node") or {}).get("node_id")
        for row in rows
        for worker in row.workers
    } - {None}
    if not ids:
        return {}
    query = select(tables.Node.id, tables.Node.name, tables.Node.host)
    found = session.exec(query.where(col(tables.Node.id).in_(ids)))
    return {node_id: (name, host) for node_id, name, host in found}


def _has_started(worker: dict[str, Any]) -> bool:
    return bool(worker.get("started_at"))


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
