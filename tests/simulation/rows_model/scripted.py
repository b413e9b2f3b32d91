"""An installation whose workflows are played by hand: a test records the steps that they would."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tests.simulation.contracts import Attempt, Rows
from tests.simulation.rows_model.temporal_double import TemporalDouble
from workflows.contracts.base import Contract
from workflows.contracts.billing import WorkerUsage
from workflows.contracts.events import Event
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.jobs import Placement, WorkerProgress, run_id
from workflows.contracts.lifecycles import (
    Changes,
    JobChanges,
    LeaseChanges,
    NodeChanges,
    ProviderChanges,
    Record,
    Recorded,
    RegionChanges,
    noun_of,
)
from workflows.contracts.nodes import Gpu, Hardware, Preparation
from workflows.contracts.statuses import JobStatus, WorkerStatus
from workflows.effects.placement import NotifyPlacedJobs, PlanPlacements

GIB = 1024**3
GPU = "NVIDIA GeForce RTX 4090"
ATTEMPT = Attempt("", "workflow", "run-of-workflow", "1", 1, "main-1")
_NO_CHANGES: dict[str, Changes] = {
    "provider": ProviderChanges(),
    "region": RegionChanges(),
    "node": NodeChanges(),
    "job": JobChanges(),
    "lease": LeaseChanges(),
}


def submission(gpus: int = 1, workers: int = 1, **more: Any) -> JobSubmission:
    asked = {"gpus": f"RTX4090:{gpus}"} if gpus else {"cpu_count": 1}
    document = {
        "name": "job",
        "type": "training",
        "resources": {**asked, "memory_gib": 1},
        "workers": [{"command": "work"}] * workers,
        "placement": {"providers": ["physical"]},
        **more,
    }
    return JobSubmission.model_validate(document)


def hardware(gpus: int) -> Hardware:
    return Hardware(
        cpu_count=16,
        memory_bytes=64 * GIB,
        free_disk_bytes=1000 * GIB,
        gpus=tuple(Gpu(index=index, name=GPU, uuid=f"GPU-{index}") for index in range(gpus)),
    )


class Scripted:
    """`Rows` with a server that runs no workflow.

    sequences: the number of the last step that the test has recorded of each resource.
    """

    def __init__(self, rows: Rows, temporal: TemporalDouble) -> None:
        self.rows = rows
        self.temporal = temporal
        self.sequences: dict[str, int] = {}
        self.started_at: dict[str, datetime] = {}
        self.account = rows.add_account(10**12)
        self.provider = rows.add_provider(self.account, "physical")
        self.dispatch()
        self.step(self.provider, "ready")
        self.region = rows.add_region(self.provider)
        self.dispatch()
        self.step(self.region, "healthy")

    def call(self, effect: str, command: Contract, attempt: Attempt = ATTEMPT) -> Any:
        return self.rows.effects[effect](attempt, command)

    def dispatch(self) -> None:
        """What the dispatchers deliver right after a commit."""
        self.temporal.play(1)
        self.rows.relay()
        self.temporal.play(1)

    def step(
        self,
        resource_id: str,
        status: str,
        changes: Changes | None = None,
        *,
        sequence: int | None = None,
        events: Iterable[str] = (),
        run: str = "run-1",
        history: int = 0,
        reason: str | None = None,
    ) -> Recorded:
        """Record a step as the workflow of the resource does."""
        number = sequence or self.sequences.get(resource_id, 0) + 1
        recorded: Recorded = self.call(
            "record",
            Record(
                resource_id=resource_id,
                account_id=self.account,
                sequence=number,
                at=self.temporal.now(),
                status=status,
                status_reason=reason,
                events=tuple(Event(type=each, message="") for each in events),
                changes=changes or _NO_CHANGES[noun_of(resource_id).name],
                run_id=run,
                history_length=history,
            ),
        )
        if recorded.applied:
            self.sequences[resource_id] = number
        return recorded

    def add_node(self, gpus: int = 2, minion_id: str = "SHA256:a") -> str:
        """An active node with so many GPUs."""
        self.rows.announce(minion_id, "10.0.0.1")
        node_id = self.rows.add_node(self.region, minion_id)
        self.dispatch()
        found = NodeChanges(
            host="10.0.0.1", hardware=hardware(gpus), preparation=Preparation(job_user="job")
        )
        self.step(node_id, "active", found, events=["node.active"])
        return node_id

    def submit(self, asked: JobSubmission | None = None) -> str:
        """A job that waits."""
        job_id = self.rows.submit(self.account, asked or submission())
        self.dispatch()
        self.step(job_id, "waiting_for_resources")
        return job_id

    def plan(self) -> int:
        placed: int = self.call("plan_placements", PlanPlacements()).placed
        self.call("notify_placed_jobs", NotifyPlacedJobs())
        return placed

    def placement(self, job_id: str) -> Placement:
        """The last placement that the job was told."""
        heard = self.temporal.workflows[f"job/{job_id}"].signals
        told = [argument for name, argument in heard if name == "placed"]
        found = told[-1]
        assert isinstance(found, Placement)
        return found

    def run(self, job_id: str) -> Placement:
        """Confirm the placement of a job, and let its workers run."""
        placement = self.placement(job_id)
        self.started_at[job_id] = self.temporal.now()
        workers = tuple(
            WorkerProgress(
                index=each.worker,
                status=WorkerStatus.RUNNING,
                assignment=each,
                run_id=run_id(job_id, each.worker, placement.attempt),
                started_at=self.temporal.now(),
            )
            for each in placement.assignments
        )
        changes = JobChanges(
            attempt=placement.attempt, confirms=placement.allocation_ids, workers=workers
        )
        self.step(job_id, "provisioning", changes)
        self.step(job_id, "running")
        return placement

    def finish(self, job_id: str, status: str = JobStatus.FINISHED, **changes: Any) -> Recorded:
        return self.step(job_id, status, JobChanges(release=True, **changes))

    def usage(self, job_id: str, through_s: int, worker: int = 0, attempt: int = 1) -> WorkerUsage:
        return WorkerUsage(
            job_id=job_id,
            worker=worker,
            attempt=attempt,
            started_at=self.started_at[job_id],
            through_s=through_s,
        )
