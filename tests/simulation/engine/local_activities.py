"""Local activities: run inside of a workflow task, by the process that has it."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_commands import ScheduleLocalActivity

from tests.simulation.contracts import Attempt
from tests.simulation.engine import failures
from tests.simulation.engine.activities import retries_of
from tests.simulation.engine.attempts import Call, Outcome
from tests.simulation.engine.clock import Due
from tests.simulation.engine.execution import Job
from workflows.contracts import queues

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine
    from tests.simulation.engine.workflow_tasks import Work


@dataclass(eq=False)
class Local:
    """A local activity of a workflow task that is with a worker process."""

    work: "Work"
    asked: ScheduleLocalActivity
    began_at: int
    attempt: int = 1
    call: Call | None = None
    due: Due | None = None

    def forget(self) -> None:
        """Its outcome is not wanted any more; what is done is done."""
        if self.due is not None:
            self.due.cancel()
        if self.call is not None:
            self.call.close()


class LocalActivities:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def begin(self, work: "Work", asked: ScheduleLocalActivity) -> None:
        local = work.locals[asked.seq] = Local(work, asked, self._engine.clock.now)
        self._begin(local)

    def _begin(self, local: Local) -> None:
        engine, asked, run = self._engine, local.asked, local.work.run
        attempt = Attempt(
            asked.activity_type,
            run.workflow_id,
            run.run_id,
            asked.activity_id,
            local.attempt,
            local.work.process.name,
        )
        number = local.attempt
        local.call = call = Call(
            engine, local.work.process, attempt, partial(self._ended, local, number), _nothing
        )
        kind = engine.asked_by(asked.activity_type)
        call.begin(queues.MAIN, engine.values.value(asked.arguments[0], kind))
        limit = asked.start_to_close_timeout.ToMicroseconds()
        is_in_time = call.answers_at is not None and call.answers_at < engine.clock.now + limit
        if limit and not is_in_time and local.work.is_open:
            timed_out = partial(self._timed_out, local, number)
            local.due = engine.clock.after(limit, timed_out)

    def _timed_out(self, local: Local, number: int) -> None:
        if local.attempt == number and local.call is not None:
            local.call.close()
            self._ended(local, number, Outcome(failed=failures.of_time(failures.START_TO_CLOSE)))

    def _ended(self, local: Local, number: int, outcome: Outcome) -> None:
        if local.attempt != number or not _is_wanted(local):
            return
        if local.due is not None:
            local.due.cancel()
            local.due = None
        failure = outcome.failed or outcome.canceled
        if failure is None:
            assert outcome.result is not None
            job = _job(local)
            job.resolve_activity.result.completed.result.CopyFrom(outcome.result)
            self._resolve(local, job, job)
            return
        retries = retries_of(local.asked.retry_policy)
        is_last = bool(retries.attempts) and local.attempt >= retries.attempts
        if is_last or not failures.is_retryable(failure, retries.non_retryable):
            self._fail(local, failure)
            return
        local.attempt += 1
        local.call = None
        again = partial(self._again, local)
        local.due = self._engine.clock.after(retries.pause(number, failure), again)

    def _again(self, local: Local) -> None:
        local.due = None
        if _is_wanted(local):
            self._begin(local)

    def _fail(self, local: Local, failure: Failure) -> None:
        """A timeout is an ActivityError when it happens, and the bare cause in a replay."""
        replayed = _job(local)
        replayed.resolve_activity.result.failed.failure.CopyFrom(failure)
        job = replayed
        if failure.HasField("timeout_failure_info"):
            job = _job(local)
            job.resolve_activity.result.failed.failure.CopyFrom(
                failures.of_activity(
                    failure,
                    effect=local.asked.activity_type,
                    activity_id=local.asked.activity_id,
                )
            )
        self._resolve(local, job, replayed)

    def _resolve(self, local: Local, job: Job, replayed: Job) -> None:
        del local.work.locals[local.asked.seq]
        self._engine.tasks.local_ended(local, job, replayed)


def _job(local: Local) -> Job:
    job = Job()
    job.resolve_activity.seq = local.asked.seq
    job.resolve_activity.is_local = True
    return job


def _is_wanted(local: Local) -> bool:
    return local.work.is_open and local.work.locals.get(local.asked.seq) is local


def _nothing() -> None:
    """A local activity sends no heartbeats."""
