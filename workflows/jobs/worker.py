"""The worker of a job: its assignment, its run, its exit, and the commands to its node."""

from collections.abc import Callable, Sequence
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
    LogCollected,
    OutputStored,
    RunFolder,
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
    save_last_snapshot,
    save_snapshot,
    stage_worker,
    start_worker,
    store_output,
)
from workflows.primitives.waiting import Interrupted, interruptible

_KILLED = (128 + 9, 128 + 15)
"""The exit codes by which a shell reports the signals KILL and TERM."""


class Worker:
    """One worker of a job in one attempt.

    pending → staging → staged → running → exited · lost
    """

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
        """How long the command has been idle, by the last poll."""
        self.started_at = progress.started_at
        self._node_started_at: datetime | None = None
        """The start by the wall clock of the worker's node, by the last poll."""
        self.finished_at = progress.finished_at
        self._seen_to_end = progress.status is WorkerStatus.EXITED
        self.staged = WorkerStaged()

    @classmethod
    def placed(cls, job_id: str, attempt: int, assignment: WorkerAssignment) -> "Worker":
        """A pending worker with its assignment."""
        return cls(
            job_id,
            attempt,
            WorkerProgress(
                index=assignment.worker,
                assignment=assignment,
                run_id=run_id(job_id, assignment.worker, attempt),
            ),
        )

    # ── commands to the node ────────────────────────────────────────────────────────────────

    async def stage(self, run_spec: str, *, restores_state: bool) -> None:
        """Bring code, packages, input, run spec and resume state to the worker's node."""
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
        """Start the worker's command, or find it started."""
        command = StartWorker(node=self.node, run_id=self.run)
        report = await start_worker(command, summary=f"start worker {self.index}")
        self.status = WorkerStatus.RUNNING
        self.started_at = workflow.now()
        self.take_report(report)

    async def poll(self) -> bool:
        """Ask the worker's node for the status of the run; return whether the answer is its end.

        The end is not news if the run's exit has arrived meanwhile.
        """
        self.idle_s = 0.0
        report = await get_run_status(GetRunStatus(node=self.node, run_id=self.run))
        had_ended = self.has_ended
        self.take_report(report)
        return self.has_ended and not had_ended

    async def end(self, grace_s: int) -> None:
        """End the run's whole process tree; the node confirms the end."""
        command = EndWorker(node=self.node, run_id=self.run, grace_s=grace_s)
        self.take_report(await end_worker(command, summary=f"end worker {self.index}"))
        self._seen_to_end = True  # Also where the node knows nothing of the run any more.

    async def store_log(self) -> LogCollected:
        """Store the whole log."""
        return await collect_log(CollectLog(node=self.node, run_id=self.run))

    async def store_output(self, is_discarded: Callable[[], bool]) -> OutputStored | None:
        """Store the output; None: it was discarded meanwhile."""
        storing = store_output(StoreOutput(node=self.node, run_id=self.run))
        try:
            return await interruptible(storing, when=is_discarded)
        except Interrupted:
            return None

    async def save_snapshot(
        self, folders: tuple[RunFolder, ...], *, is_last: bool = False
    ) -> SnapshotSaved:
        """Store a state snapshot of the run, of these folders; the last one is tried again."""
        save = save_last_snapshot if is_last else save_snapshot
        command = SaveSnapshot(node=self.node, run_id=self.run, at=workflow.now(), folders=folders)
        return await save(command, summary=f"save the state of worker {self.index}")

    async def clean(self) -> None:
        """Remove the run's folders from the worker's node."""
        await clean_worker(CleanWorker(node=self.node, run_id=self.run))

    def moves(self, address: NodeAddress | None) -> bool:
        """Take over the present address of the worker's node, and return whether it has changed."""
        if address is None or address.node_id != self.node.node_id or address == self.node:
            return False
        self.assignment = self.assigned.model_copy(update={"node": address})
        return True

    # ── state ───────────────────────────────────────────────────────────────────────────────

    @property
    def node(self) -> NodeAddress:
        return self.assigned.node

    @property
    def assigned(self) -> WorkerAssignment:
        """The node and its resources that placement gave to this worker.

        Raises:
            ValueError: Nothing is assigned yet.
        """
        if self.assignment is None:
            raise ValueError(f"worker {self.index} has no assignment yet")
        return self.assignment

    @property
    def run(self) -> str:
        """The id of its run on the node.

        Raises:
            ValueError: It has no run yet.
        """
        if self.run_id is None:
            raise ValueError(f"worker {self.index} has no run yet")
        return self.run_id

    @property
    def may_be_there(self) -> bool:
        """Whether the node may hold files or processes of the run, to end and clean."""
        return self.status is not WorkerStatus.PENDING

    @property
    def has_ended(self) -> bool:
        return self.status in (WorkerStatus.EXITED, WorkerStatus.LOST)

    @property
    def may_run_on(self) -> bool:
        """Whether processes of the run may be left: nobody has seen the run end."""
        return self.may_be_there and not self._seen_to_end

    @property
    def has_run(self) -> bool:
        return self.started_at is not None

    def take_report(self, report: RunReport) -> None:
        """Take over the node's report of the run; an exit is final."""
        self.elapsed_s = max(self.elapsed_s, report.elapsed_s)
        self.idle_s = report.idle_s
        self._node_started_at = report.started_at or self._node_started_at
        if self.started_at is None and self.elapsed_s > 0:
            # The answer to the start was lost or not awaited; the measured seconds still count.
            self.started_at = workflow.now() - timedelta(seconds=self.elapsed_s)
        if report.exit is not None:
            self.take_exit(report.exit)
        elif report.state in (RunState.LOST, RunState.UNKNOWN) and not self.has_ended:
            self.status = WorkerStatus.LOST
            self.finished_at = workflow.now()

    def take_exit(self, ended: Exit) -> None:
        if self.status is WorkerStatus.EXITED:
            return
        self.status, self._seen_to_end = WorkerStatus.EXITED, True
        self.exit = ended
        self.elapsed_s = max(self.elapsed_s, ended.elapsed_s)
        self.finished_at = workflow.now()

    def ran_until(self, ended_at: datetime, now: datetime) -> None:
        """Bill the run until its machine ended, unless its end was observed before.

        ended_at: by the provider's clock. However wrong either clock is, the run is not billed
        beyond the present instant, nor for less than its node has measured.
        """
        if self.started_at is None or self.finished_at is not None:
            return
        ran_s = (min(ended_at, now) - self.started_at).total_seconds()
        self.elapsed_s = max(self.elapsed_s, ran_s)
        self.finished_at = self.started_at + timedelta(seconds=self.elapsed_s)

    @property
    def failure(self) -> str | None:
        """Why the worker failed; None: it has not failed."""
        if self.status is WorkerStatus.LOST:
            return (
                f"worker {self.index}: its command was gone when node "
                f"{self.node.node_id} was polled (the machine restarted, or the supervisor was "
                f"killed) after {self.elapsed_s:.0f} s"
            )
        if self.exit is None or self.exit.succeeded:
            return None
        return f"worker {self.index}: {_describe(self.exit)}"

    @property
    def may_be_preempted(self) -> bool:
        """Whether the command was killed on a machine that may be preempted."""
        ended = self.exit
        if ended is None or not self.assigned.ephemeral:
            return False
        stops = ended.reason == "node-stopping"  # The machine has told the supervisor so.
        return stops or ended.signal is not None or ended.exit_code in _KILLED

    @property
    def usage(self) -> WorkerUsage | None:
        """The usage of the run by its node's measurement; None: the run has not started."""
        if self.started_at is None:
            return None
        return WorkerUsage(
            job_id=self._job_id,
            worker=self.index,
            attempt=self._attempt,
            started_at=self.started_at,
            through_s=int(self.elapsed_s),
            node_started_at=(self.exit and self.exit.started_at) or self._node_started_at,
            node_ended_at=self.exit and self.exit.finished_at,
        )

    def exit_event(self) -> Event:
        """The event of the command's end."""
        return Event(
            type=JobEvent.WORKER_EXITED,
            message=self.failure or f"worker {self.index}: its command ended",
            details={
                "worker": self.index,
                "exit_code": self.exit.exit_code if self.exit else None,
                "elapsed_s": self.elapsed_s,
            },
        )

    def abandoned_event(self, reason: str, *, for_good: bool) -> Event:
        """The event of an abandoned worker; for_good: the worker's node does not return."""
        later = "" if for_good else "; its node ends the command, and holds its GPUs until then"
        message = f"worker {self.index}: the end could not be confirmed: {reason}{later}"
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


def all_ended(workers: Sequence[Worker]) -> bool:
    """Whether there are workers, and the commands of all have ended."""
    return bool(workers) and all(worker.has_ended for worker in workers)


def failures_of(workers: Sequence[Worker]) -> list[str]:
    """The reasons of all workers that have failed."""
    return [worker.failure for worker in workers if worker.failure]


def _describe(ended: Exit) -> str:
    if ended.message:
        return ended.message
    if ended.signal is not None:
        return f"its command was killed by signal {ended.signal}"
    return f"its command exited with status {ended.exit_code} ({ended.reason})"
