"""A whole job in virtual time, told line by line: each effect that it asks for, and each step.

What is left out of a lifecycle - a step, an effect, an argument, a wait - changes what is told.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any

from temporalio import workflow

from tests.simulation.contracts import Attempt as Call
from tests.simulation.contracts import Steps
from tests.simulation.engine.engine import Engine, Limits
from tests.transcripts.jobs.answers import ANSWERS, Answer, ended_by, runs
from tests.transcripts.jobs.given import Signal
from workflows.contracts.base import Contract
from workflows.contracts.jobs import (
    Exit,
    JobProgress,
    JobRequest,
    RunReport,
    WorkerAssignment,
    WorkerProgress,
)
from workflows.contracts.lifecycles import JobChanges, Record
from workflows.contracts.nodes import NodeAddress, ProtocolViolation
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


class WholeJob:
    """A job, what the world answers to it, and what it has told.

    answers: of effects, by name; an answer may raise. asked: fields of its request.
    """

    def __init__(
        self, *answers: Mapping[str, Answer], limits: Limits | None = None, **asked: Any
    ) -> None:
        given = {"type": JobType.TRAINING, **asked}
        self.request = JobRequest(
            job_id="job-1", account_id="acc-1", project_id="prj-1", name="digits", **given
        )
        self.engine = Engine(7, workflows=[JobLifecycle, Listener], limits=limits)
        self.told: list[str] = []
        self.ends: dict[str, Exit] = {}
        """The runs whose commands have ended."""
        self._answers = {**ANSWERS, "get_run_status": self._report}
        for each in answers:
            self._answers.update(each)
        self._row = self._columns(JobChanges())

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
        engine = self.engine
        engine.serve({name: partial(self._answer, name) for name in self._answers})
        self.began = engine.now()
        nobody = ProtocolViolation(minion_id="", reason="")
        engine.start("NodeLifecycle", "node/nod-1", nobody)
        engine.start("JobLifecycle", ID, self.request)
        for at, name, argument in signals:
            engine.later(at, partial(engine.signal, ID, name, argument))
        engine.play(most_s=most_s)
        return [*_in_order(self.told), *self._end()]

    def _end(self) -> list[str]:
        """What it returns, or shows where it goes on."""
        shown = self.engine.describe(ID)
        ends = shown.status == "completed"
        report = self.engine.result(ID) if ends else self.engine.query(ID, "status")
        workers = [f"worker {each.index} {self._worker(each)}" for each in report.workers]
        return [
            "; ".join([f"{shown.status}: {report.job_id} {report.status}", *workers]),
            f"because {report.status_reason}",
            f"found by {dict(sorted(shown.search_attributes.items()))}",
        ]

    def mend(self) -> None:
        """Let every effect answer as ever from now on."""
        self._answers = {**ANSWERS, "get_run_status": self._report}

    def _answer(self, name: str, call: Call, asked: Contract) -> Contract | Steps:
        again = f" (try {call.number})" if call.number > 1 else ""
        what = self._step(asked) if isinstance(asked, Record) else self._short(asked)
        self.told.append(f"{self._seconds(self.engine.now())} {name}{again}: {what}")
        return self._answers[name](asked)

    def _step(self, step: Record) -> str:
        """The step, and what it changes in the row."""
        assert isinstance(step.changes, JobChanges)
        row = self._columns(step.changes)
        changed = [f"{name} {text}" for name, text in row.items() if self._row.get(name) != text]
        changed += [f"no {name}" for name in self._row if name not in row]
        self._row = row
        events = [f"{event.type} {event.message!r}{event.details or ''}" for event in step.events]
        why = f"({step.status_reason}) " if step.status_reason else ""
        return f"{step.sequence} {step.status} {why}{'; '.join([*events, *changed])}"

    def _columns(self, changes: JobChanges) -> dict[str, str]:
        row: dict[str, str] = {}
        for name in JobChanges.model_fields:
            value = getattr(changes, name)
            if name == "workers":
                row |= {f"worker {each.index}": self._worker(each) for each in value or ()}
            else:
                row[name] = self._short(value)
        return row

    def _worker(self, worker: WorkerProgress) -> str:
        where = worker.assignment and worker.assignment.allocation_id
        dates = f"{self._short(worker.started_at)}…{self._short(worker.finished_at)}"
        code = worker.exit and worker.exit.exit_code
        return f"{worker.status} {where} {worker.run_id} {dates} {worker.elapsed_s:g} {code}"

    def _short(self, value: object) -> str:
        if isinstance(value, NodeAddress):
            return f"{value.node_id}@{value.host}"
        if isinstance(value, WorkerAssignment):
            return value.allocation_id
        if isinstance(value, Contract):
            fields = type(value).model_fields.items()
            set_ = [(name, getattr(value, name)) for name, field in fields]
            known = {name: field.default for name, field in fields}
            return ", ".join(f"{n} {self._short(v)}" for n, v in set_ if v != known[n])
        if isinstance(value, tuple):
            return f"[{'; '.join(map(self._short, value))}]"
        return self._seconds(value) if isinstance(value, datetime) else str(value)

    def _seconds(self, at: datetime) -> str:
        return f"{(at - self.began).total_seconds():.0f}"

    def _report(self, asked: Any) -> RunReport:
        ended = self.ends.get(asked.run_id)
        return runs(asked) if ended is None else ended_by(asked, ended)


def _in_order(told: list[str]) -> list[str]:
    """What was asked for at once on several nodes, in the order of the nodes."""
    found: list[str] = []
    for _, lines in groupby(told, key=lambda line: line.partition(":")[0]):
        same = list(lines)
        found += same if " record" in same[0] else sorted(same)
    return found
