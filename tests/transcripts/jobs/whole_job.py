"""A whole job, and how what is told of it reads."""

from collections.abc import Mapping
from typing import Any

from temporalio import workflow

from tests.simulation.engine.engine import Limits
from tests.transcripts.jobs.answers import ANSWERS, ended_by, runs
from tests.transcripts.whole import Answer, Signal, Whole
from workflows.contracts.jobs import (
    Exit,
    JobProgress,
    JobRequest,
    RunReport,
    WorkerAssignment,
    WorkerProgress,
)
from workflows.contracts.lifecycles import JobChanges
from workflows.contracts.nodes import ProtocolViolation
from workflows.contracts.statuses import JobStatus, JobType
from workflows.jobs.job_lifecycle import JobLifecycle

ID = "job/job-1"


@workflow.defn(name="NodeLifecycle")
class Listener:
    """A node that hears of violations, and does nothing about them."""

    def __init__(self) -> None:
        self._heard: list[str] = []

    @workflow.run
    async def run(self, _: ProtocolViolation) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def protocol_violated(self, violation: ProtocolViolation) -> None:
        self._heard.append(f"{workflow.time():.0f} {violation}")

    @workflow.query
    def heard(self) -> list[str]:
        return self._heard


class WholeJob(Whole):
    """A job on nodes of which one hears of violations.

    answers: other than `ANSWERS`; asked: fields of its request.
    """

    def __init__(
        self, *answers: Mapping[str, Answer], limits: Limits | None = None, **asked: Any
    ) -> None:
        given = {"type": JobType.TRAINING, **asked}
        self.request = JobRequest(
            job_id="job-1", account_id="acc-1", project_id="prj-1", name="digits", **given
        )
        self.ends: dict[str, Exit] = {}
        """The runs whose commands have ended."""
        served = {**ANSWERS, "get_run_status": self._report}
        for each in answers:
            served.update(each)
        super().__init__((JobLifecycle, Listener), JobChanges(), served, limits)

    def adopted(
        self, status: JobStatus, *workers: WorkerProgress, number: int = 1, **given: Any
    ) -> None:
        """Let it begin from its row, whose workflow was lost."""
        began = {"started_at": self.engine.now()}
        progress = JobProgress(
            sequence=7, attempt=number, status=status, is_adopted=True,
            workers=tuple(worker.model_copy(update=began) for worker in workers), **given,
        )  # fmt: skip
        self.request = self.request.model_copy(update={"resumed_from": progress})

    def play(self, *signals: Signal, most_s: float = 10**6) -> list[str]:
        """What it tells until it has ended, or waits for longer than that."""
        nobody = ProtocolViolation(minion_id="", reason="")
        self.engine.start("NodeLifecycle", "node/nod-1", nobody)
        self.begin("JobLifecycle", ID, self.request)
        return self.go_on(ID, signals, most_s)

    def mend(self) -> None:
        """Let every effect answer as ever from now on."""
        self.answers = {**ANSWERS, "get_run_status": self._report}

    def more_of(self, report: Any) -> str:
        workers = [f"worker {each.index} {self._worker(each)}" for each in report.workers]
        return "; ".join([report.job_id, *workers])

    def columns(self, changes: JobChanges) -> dict[str, str]:
        row = super().columns(changes)
        del row["workers"]
        return row | {f"worker {each.index}": self._worker(each) for each in changes.workers or ()}

    def short(self, value: object) -> str:
        if isinstance(value, WorkerAssignment):
            return value.allocation_id
        return super().short(value)

    def _worker(self, worker: WorkerProgress) -> str:
        where = worker.assignment and worker.assignment.allocation_id
        dates = f"{self.short(worker.started_at)}…{self.short(worker.finished_at)}"
        code = worker.exit and worker.exit.exit_code
        return f"{worker.status} {where} {worker.run_id} {dates} {worker.elapsed_s:g} {code}"

    def _report(self, asked: Any) -> RunReport:
        ended = self.ends.get(asked.run_id)
        return runs(asked) if ended is None else ended_by(asked, ended)
