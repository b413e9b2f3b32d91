"""One worker of a job: its place, its run and its exit. State alone; `job.py` acts."""

from datetime import datetime

from workflows.contracts.job import (
    Exit,
    RunReport,
    WorkerAssignment,
    WorkerCarry,
    run_id,
)
from workflows.contracts.states import RunState, WorkerStatus


class Worker:
    """pending → staging → staged → running → exited · lost"""

    def __init__(self, carried: WorkerCarry) -> None:
        self.index = carried.index
        self.status = carried.status
        self.assignment = carried.assignment
        self.run_id = carried.run_id
        self.exit = carried.exit
        self.elapsed_s = carried.elapsed_s
        self.started_at = carried.started_at
        self.finished_at = carried.finished_at

    @classmethod
    def placed(cls, job_id: str, attempt: int, assignment: WorkerAssignment) -> "Worker":
        """A worker that has been given its place and has done nothing there."""
        return cls(
            WorkerCarry(
                index=assignment.worker,
                assignment=assignment,
                run_id=run_id(job_id, assignment.worker, attempt),
            )
        )

    @property
    def place(self) -> WorkerAssignment:
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

    def starts(self, report: RunReport, at: datetime) -> None:
        self.status = WorkerStatus.RUNNING
        self.started_at = at
        self.sees(report, at)

    def sees(self, report: RunReport, at: datetime) -> None:
        """Take over what the node says of the run; an exit is final."""
        self.elapsed_s = max(self.elapsed_s, report.elapsed_s)
        if report.exit is not None:
            self.exits(report.exit, at)
        elif report.state in (RunState.LOST, RunState.UNKNOWN) and not self.has_ended:
            self.status = WorkerStatus.LOST
            self.finished_at = at

    def exits(self, ended: Exit, at: datetime) -> None:
        if self.status is WorkerStatus.EXITED:
            return
        self.status = WorkerStatus.EXITED
        self.exit = ended
        self.elapsed_s = max(self.elapsed_s, ended.elapsed_s)
        self.finished_at = at

    @property
    def failure(self) -> str | None:
        """Why it failed, None when it has not."""
        if self.status is WorkerStatus.LOST:
            return (
                f"worker {self.index}: its command was gone when node "
                f"{self.place.node.node_id} was looked at again (the machine restarted, or its "
                f"supervisor was killed) after {self.elapsed_s:.0f} s"
            )
        if self.exit is None or self.exit.succeeded:
            return None
        return f"worker {self.index}: {_said(self.exit)}"

    def carry(self) -> WorkerCarry:
        return WorkerCarry(
            index=self.index,
            status=self.status,
            assignment=self.assignment,
            run_id=self.run_id,
            exit=self.exit,
            elapsed_s=self.elapsed_s,
            started_at=self.started_at,
            finished_at=self.finished_at,
        )


def _said(ended: Exit) -> str:
    if ended.message:
        return ended.message
    if ended.signal is not None:
        return f"its command was killed by signal {ended.signal}"
    return f"its command exited with status {ended.exit_code} ({ended.reason})"
