"""One worker of a job: its place, its run, its exit, and what is asked of its node."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.billing import WorkerUsage
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import (
    Exit,
    RunReport,
    WorkerAssignment,
    WorkerProgress,
    run_id,
)
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import RunState, WorkerStatus
from workflows.effects.jobs import (
    CleanWorker,
    CollectLog,
    EndWorker,
    GetRunStatus,
    SaveSnapshot,
    SnapshotSaved,
    StageWorker,
    StartWorker,
    StoreOutput,
    WorkerStaged,
    clean_worker,
    collect_log,
    end_worker,
    get_run_status,
    save_snapshot,
    stage_worker,
    start_worker,
    store_output,
)

_KILLED = (128 + 9, 128 + 15)
"""What a shell makes of KILL and TERM."""


class Worker:
    """pending → staging → staged → running → exited · lost"""

    def __init__(self, job_id: str, attempt: int, progress: WorkerProgress) -> None:
        self._job_id = job_id
        self._attempt = attempt
        self.index = progress.index
        self.status = progress.status
        self.assignment = progress.assignment
        self.run_id = progress.run_id
        self.exit = progress.exit
        self.elapsed_s = progress.elapsed_s
        self.idle_s = 0.0
        """For how long it has done nothing, by the last look."""
        self.started_at = progress.started_at
        self.finished_at = progress.finished_at
        self.staged = WorkerStaged()

    @classmethod
    def placed(cls, job_id: str, attempt: int, assignment: WorkerAssignment) -> "Worker":
        """A worker that has been given its place and has done nothing there."""
        return cls(
            job_id,
            attempt,
            WorkerProgress(
                index=assignment.worker,
                assignment=assignment,
                run_id=run_id(job_id, assignment.worker, attempt),
            ),
        )

    # ── what is asked of its node ───────────────────────────────────────────────────────────

    async def stage(self, run_spec: str, *, restores_state: bool) -> None:
        """Bring code, packages, input, sealed environment and resume state to its node."""
        command = StageWorker(
            node=self.node,
            run_id=self.run,
            run_spec=run_spec,
            assignment=self.assigned,
            restores_state=restores_state,
        )
        summary = f"stage worker {self.index} on {self.node.node_id}"
        self.staged = await stage_worker(command, summary=summary)
        self.status = WorkerStatus.STAGED

    async def start(self) -> None:
        """Start its command, or find it started."""
        command = StartWorker(node=self.node, run_id=self.run)
        report = await start_worker(command, summary=f"start worker {self.index}")
        self.status = WorkerStatus.RUNNING
        self.started_at = workflow.now()
        self.sees(report)

    async def look(self) -> None:
        """Ask its node for its run."""
        self.idle_s = 0.0
        self.sees(await get_run_status(GetRunStatus(node=self.node, run_id=self.run)))

    async def end(self, grace_s: int) -> None:
        """End its whole process tree; the node says that it is gone."""
        command = EndWorker(node=self.node, run_id=self.run, grace_s=grace_s)
        self.sees(await end_worker(command, summary=f"end worker {self.index}"))

    async def store(self, *, with_output: bool) -> int:
        """Store its log to the last byte and, when wanted, its output: the bytes of the latter."""
        await collect_log(CollectLog(node=self.node, run_id=self.run))
        if not with_output:
            return 0
        return (await store_output(StoreOutput(node=self.node, run_id=self.run))).stored_bytes

    async def save_snapshot(self) -> SnapshotSaved:
        """Copy its resume state off its node."""
        command = SaveSnapshot(node=self.node, run_id=self.run, at=workflow.now())
        return await save_snapshot(command, summary=f"copy the state of worker {self.index}")

    async def clean(self) -> None:
        """Remove its folders from its node."""
        await clean_worker(CleanWorker(node=self.node, run_id=self.run))

    def moves(self, address: NodeAddress | None) -> bool:
        """Whether its node is somewhere else now."""
        if address is None or address.node_id != self.node.node_id or address == self.node:
            return False
        self.assignment = self.assigned.model_copy(update={"node": address})
        return True

    # ── what it is ──────────────────────────────────────────────────────────────────────────

    @property
    def node(self) -> NodeAddress:
        return self.assigned.node

    @property
    def assigned(self) -> WorkerAssignment:
        if self.assignment is None:
            raise ValueError(f"worker {self.index} has no place yet")
        return self.assignment

    @property
    def run(self) -> str:
        if self.run_id is None:
            raise ValueError(f"worker {self.index} has no run yet")
        return self.run_id

    @property
    def may_be_there(self) -> bool:
        """Something of it may be on its node: it is ended and cleaned before it is let go."""
        return self.status is not WorkerStatus.PENDING

    @property
    def has_ended(self) -> bool:
        return self.status in (WorkerStatus.EXITED, WorkerStatus.LOST)

    @property
    def has_run(self) -> bool:
        return self.started_at is not None

    def sees(self, report: RunReport) -> None:
        """Take over what the node says of the run; an exit is final."""
        self.elapsed_s = max(self.elapsed_s, report.elapsed_s)
        self.idle_s = report.idle_s
        if self.started_at is None and self.elapsed_s > 0:
            # The answer to its start was lost, or not waited for: what it ran counts all the same.
            self.started_at = workflow.now() - timedelta(seconds=self.elapsed_s)
        if report.exit is not None:
            self.exits(report.exit)
        elif report.state in (RunState.LOST, RunState.UNKNOWN) and not self.has_ended:
            self.status = WorkerStatus.LOST
            self.finished_at = workflow.now()

    def exits(self, ended: Exit) -> None:
        if self.status is WorkerStatus.EXITED:
            return
        self.status = WorkerStatus.EXITED
        self.exit = ended
        self.elapsed_s = max(self.elapsed_s, ended.elapsed_s)
        self.finished_at = workflow.now()

    def ran_until(self, ended_at: datetime, now: datetime) -> None:
        """Its machine has ended then, by its provider's clock, and its command with it, unless
        that was seen to end before.

        However wrong either clock is, it has not run for longer than we know of its start.
        """
        if self.started_at is None or self.finished_at is not None:
            return
        ran_s = (min(ended_at, now) - self.started_at).total_seconds()
        self.elapsed_s = max(self.elapsed_s, ran_s)
        self.finished_at = self.started_at + timedelta(seconds=self.elapsed_s)

    @property
    def failure(self) -> str | None:
        """Why it failed, None when it has not."""
        if self.status is WorkerStatus.LOST:
            return (
                f"worker {self.index}: its command was gone when node "
                f"{self.node.node_id} was looked at again (the machine restarted, or its "
                f"supervisor was killed) after {self.elapsed_s:.0f} s"
            )
        if self.exit is None or self.exit.succeeded:
            return None
        return f"worker {self.index}: {_said(self.exit)}"

    @property
    def may_be_taken(self) -> bool:
        """Its command was killed, on a machine that may be on its way back to its cloud."""
        ended = self.exit
        if ended is None or not self.assigned.ephemeral:
            return False
        stops = ended.reason == "node-stopping"  # its supervisor was told so by the machine
        return stops or ended.signal is not None or ended.exit_code in _KILLED

    @property
    def usage(self) -> WorkerUsage | None:
        """What its node has measured; None when it has not started."""
        if self.started_at is None:
            return None
        return WorkerUsage(
            job_id=self._job_id,
            worker=self.index,
            attempt=self._attempt,
            started_at=self.started_at,
            through_s=int(self.elapsed_s),
        )

    def exit_event(self) -> Event:
        """What is told when its command has ended."""
        return Event(
            type=JobEvent.WORKER_EXITED,
            message=self.failure or f"worker {self.index}: its command ended",
            details={
                "worker": self.index,
                "exit_code": self.exit.exit_code if self.exit else None,
                "elapsed_s": self.elapsed_s,
            },
        )

    def left_event(self, seen: str, *, for_good: bool) -> Event:
        """What is told when nobody could see it end; for_good: its node does not come back."""
        later = "" if for_good else "; it is ended when its node is back"
        message = f"worker {self.index} could not be seen to end: {seen}{later}"
        return Event(type=JobEvent.WORKER_ABANDONED, message=message)

    def progress(self) -> WorkerProgress:
        return WorkerProgress(
            index=self.index,
            status=self.status,
            assignment=self.assignment,
            run_id=self.run_id,
            exit=self.exit,
            elapsed_s=self.elapsed_s,
            started_at=self.started_at,
            finished_at=self.finished_at,
        )


def progress_of(workers: Sequence[Worker]) -> tuple[WorkerProgress, ...]:
    return tuple(worker.progress() for worker in workers)


def failures_of(workers: Sequence[Worker]) -> list[str]:
    """Why those that have failed did so."""
    return [worker.failure for worker in workers if worker.failure]


def _said(ended: Exit) -> str:
    if ended.message:
        return ended.message
    if ended.signal is not None:
        return f"its command was killed by signal {ended.signal}"
    return f"its command exited with status {ended.exit_code} ({ended.reason})"
