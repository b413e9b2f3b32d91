"""Activities as the server has them: dispatch, time limits, retries, heartbeats, cancellation."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Payload, RetryPolicy
from temporalio.api.enums.v1 import RetryState, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.bridge.proto.workflow_commands import ScheduleActivity

from tests.simulation.contracts import Attempt
from tests.simulation.engine import failures
from tests.simulation.engine.attempts import Call, Outcome
from tests.simulation.engine.clock import SECOND, Due
from tests.simulation.engine.execution import Happening, Job, Run

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine
    from tests.simulation.engine.processes import Process

HEARTBEAT_THROTTLE_S = 4.0
"""As workers/sites.py:LONG_ACTIVITY_HEARTBEAT: how long a cancellation takes to be noticed."""
DISPATCH = 3_000
"""The longest ordinary time until a process has taken an activity, in microseconds."""


@dataclass(frozen=True)
class Retries:
    """A retry policy, in microseconds."""

    first: int
    factor: float
    longest: int
    attempts: int
    non_retryable: Sequence[str]

    def pause(self, attempt: int, failure: Failure) -> int:
        """The pause after an attempt, unless the failure names one itself."""
        info = failure.application_failure_info
        if failure.HasField("application_failure_info") and info.HasField("next_retry_delay"):
            return info.next_retry_delay.ToMicroseconds()
        return int(min(self.first * self.factor ** min(attempt - 1, 60), self.longest))


def retries_of(policy: RetryPolicy) -> Retries:
    """Unset fields have the server's defaults."""
    first = policy.initial_interval.ToMicroseconds() or SECOND
    return Retries(
        first=first,
        factor=policy.backoff_coefficient or 2.0,
        longest=policy.maximum_interval.ToMicroseconds() or 100 * first,
        attempts=policy.maximum_attempts,
        non_retryable=tuple(policy.non_retryable_error_types),
    )


@dataclass(eq=False)
class Activity:
    """One activity that is not closed; times in microseconds, 0: no limit.

    state: `waiting` for a process, `started`, or `paused` between two attempts; due: the end of a
    pause or of a time limit.
    """

    run: Run
    seq: int
    activity_id: str
    effect: str
    argument: Payload
    queue: str
    start_to_close: int
    schedule_to_start: int
    heartbeat: int
    policy: RetryPolicy
    closes_at: int | None
    scheduled_at: int
    state: str = "waiting"
    attempt: int = 1
    started_at: int = 0
    is_cancel_requested: bool = False
    last_failure: Failure | None = None
    call: Call | None = None
    due: Due | None = None
    silence: Due | None = None


class Activities:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

    def schedule(self, run: Run, asked: ScheduleActivity) -> None:
        now = self._engine.clock.now
        closes_in = _micros(asked.schedule_to_close_timeout)
        activity = Activity(
            run=run,
            seq=asked.seq,
            activity_id=asked.activity_id,
            effect=asked.activity_type,
            argument=asked.arguments[0],
            queue=asked.task_queue,
            start_to_close=_micros(asked.start_to_close_timeout) or closes_in,
            schedule_to_start=_micros(asked.schedule_to_start_timeout),
            heartbeat=_micros(asked.heartbeat_timeout),
            policy=asked.retry_policy,
            closes_at=now + closes_in if closes_in else None,
            scheduled_at=now,
        )
        run.activities[asked.seq] = activity
        self._wait_for_process(activity)

    def request_cancel(self, run: Run, seq: int) -> None:
        """Of an activity that has closed, the request is in the history and has no effect."""
        activity = run.activities.get(seq)
        if activity is None:
            return
        activity.is_cancel_requested = True
        if activity.state == "started":
            self._cut_off_with_next_heartbeat(activity)
        else:
            self._close(activity, "ActivityTaskCanceled", canceled=failures.of_cancellation())

    def run_closed(self, run: Run) -> None:
        """Nobody wants the activities of a closed run; attempts notice it by a heartbeat."""
        activities, run.activities = list(run.activities.values()), {}
        for activity in activities:
            _cancel(activity)
            if activity.state == "started":
                self._cut_off_with_next_heartbeat(activity)

    def resume(self, activity: Activity) -> None:
        """Wait again as the server does that has read this activity from its files."""
        activity.run.activities[activity.seq] = activity
        if activity.state == "started":
            self._start_limit(activity)
            if activity.heartbeat:
                self._silent(activity, activity.attempt)
        else:
            self._wait_for_process(activity)

    # ── waiting for a process ──

    def _wait_for_process(self, activity: Activity) -> None:
        activity.state = "waiting"
        attempt = activity.attempt
        if not self._engine.processes.take(
            activity.queue, lambda process: self._dispatch(activity, attempt, process)
        ):
            self._limit_wait(activity)

    def _limit_wait(self, activity: Activity) -> None:
        now = self._engine.clock.now
        limits: list[tuple[int, TimeoutType.ValueType]] = []
        if activity.schedule_to_start:
            limits.append((now + activity.schedule_to_start, failures.SCHEDULE_TO_START))
        if activity.closes_at is not None:
            is_first = activity.attempt == 1 and not activity.schedule_to_start
            kind = failures.SCHEDULE_TO_START if is_first else failures.SCHEDULE_TO_CLOSE
            limits.append((activity.closes_at, kind))
        self._limit(activity, limits)

    def _limit(self, activity: Activity, limits: list[tuple[int, TimeoutType.ValueType]]) -> None:
        if limits:
            at, kind = min(limits)
            act = partial(self._timed_out, activity, activity.attempt, kind)
            activity.due = self._after(activity, at - self._engine.clock.now, act)

    def _after(self, activity: Activity, delay: int, act: Any) -> Due:
        return self._engine.clock.after(delay, act, activity.run.is_endless)

    def _dispatch(self, activity: Activity, attempt: int, process: "Process") -> None:
        delay = int(DISPATCH * (0.2 + 0.8 * self._engine.random.random()))
        start = partial(self._start, activity, attempt, process, process.life)
        self._after(activity, delay, start)

    def _start(self, activity: Activity, attempt: int, process: "Process", life: int) -> None:
        if not _is_at(activity, attempt, "waiting"):
            return
        if not process.is_alive or process.life != life or process.is_stopping:
            self._wait_for_process(activity)
            return
        if activity.due is not None:
            activity.due.cancel()
            activity.due = None
        activity.state, activity.started_at = "started", self._engine.clock.now
        call = activity.call = Call(
            self._engine,
            process,
            Attempt(
                activity.effect,
                activity.run.workflow_id,
                activity.run.run_id,
                activity.activity_id,
                attempt,
                process.name,
            ),
            partial(self._ended, activity, attempt),
            partial(self._silent, activity, attempt),
        )
        kind = self._engine.asked_by(activity.effect)
        call.begin(activity.queue, self._engine.values.value(activity.argument, kind))
        limit = self._engine.clock.now + activity.start_to_close
        if activity.closes_at is not None:
            limit = min(limit, activity.closes_at)
        if activity.call is call and (call.answers_at is None or call.answers_at >= limit):
            self._start_limit(activity)

    def _start_limit(self, activity: Activity) -> None:
        limits = [(self._engine.clock.now + activity.start_to_close, failures.START_TO_CLOSE)]
        if activity.closes_at is not None:
            limits.append((activity.closes_at, failures.SCHEDULE_TO_CLOSE))
        self._limit(activity, limits)

    # ── the ends of an attempt ──

    def _ended(self, activity: Activity, attempt: int, outcome: Outcome) -> None:
        if not _is_at(activity, attempt, "started"):
            return
        if outcome.result is not None:
            self._close(activity, "ActivityTaskCompleted", result=outcome.result)
        elif outcome.canceled is not None and activity.is_cancel_requested:
            self._close(activity, "ActivityTaskCanceled", canceled=outcome.canceled)
        else:
            failure = outcome.failed or failures.of_application(RuntimeError("cut off"))
            self._failed(activity, failure, "ActivityTaskFailed")

    def _silent(self, activity: Activity, attempt: int) -> None:
        """The process has died. No heartbeat arrives any more: the last one was up to its throttle
        ago. Nor does the answer, for whose sake the limit was not watched before."""
        if _is_at(activity, attempt, "started") and activity.due is None:
            self._start_limit(activity)
        if _is_at(activity, attempt, "started") and activity.heartbeat:
            left = int(activity.heartbeat * (0.2 + 0.8 * self._engine.random.random()))
            act = partial(self._timed_out, activity, attempt, failures.HEARTBEAT)
            activity.silence = self._after(activity, left, act)

    def _timed_out(self, activity: Activity, attempt: int, kind: "TimeoutType.ValueType") -> None:
        if activity.attempt != attempt or activity.seq not in activity.run.activities:
            return
        if activity.call is not None:
            activity.call.close()
        failure = failures.of_time(kind, activity.last_failure)
        self._failed(activity, failure, "ActivityTaskTimedOut")

    def _failed(self, activity: Activity, failure: Failure, event: str) -> None:
        state, pause = self._next(activity, failure)
        if state != failures.IN_PROGRESS:
            self._close(activity, event, failed=failure, state=state)
            return
        _cancel(activity)
        failure.ClearField("cause")
        activity.last_failure, activity.call = failure, None
        activity.attempt += 1
        activity.state = "paused"
        again = partial(self._again, activity, activity.attempt)
        activity.due = self._after(activity, pause, again)

    def _again(self, activity: Activity, attempt: int) -> None:
        if _is_at(activity, attempt, "paused"):
            activity.due = None
            self._wait_for_process(activity)

    def _next(self, activity: Activity, failure: Failure) -> tuple["RetryState.ValueType", int]:
        """Whether another attempt follows, and after which pause."""
        retries = retries_of(activity.policy)
        if activity.is_cancel_requested:
            return failures.CANCEL_REQUESTED, 0
        if not failures.is_retryable(failure, retries.non_retryable):
            return failures.NON_RETRYABLE, 0
        if retries.attempts and activity.attempt >= retries.attempts:
            return failures.OUT_OF_ATTEMPTS, 0
        pause = retries.pause(activity.attempt, failure)
        if activity.closes_at is not None and self._engine.clock.now + pause > activity.closes_at:
            return failures.OUT_OF_TIME, 0
        return failures.IN_PROGRESS, pause

    def _close(
        self,
        activity: Activity,
        event: str,
        *,
        result: Payload | None = None,
        failed: Failure | None = None,
        canceled: Failure | None = None,
        state: "RetryState.ValueType" = failures.IN_PROGRESS,
    ) -> None:
        was_started = activity.state == "started"
        _cancel(activity)
        activity.run.activities.pop(activity.seq, None)
        job = Job()
        resolved = job.resolve_activity
        resolved.seq = activity.seq
        if result is not None:
            resolved.result.completed.result.CopyFrom(result)
        elif failed is not None:
            resolved.result.failed.failure.CopyFrom(_failure(activity, failed, state))
        elif canceled is not None:
            failure = _failure(activity, canceled, failures.CANCEL_REQUESTED)
            resolved.result.cancelled.failure.CopyFrom(failure)
        events = ("ActivityTaskStarted", event) if was_started else (event,)
        self._engine.tasks.happen(activity.run, Happening(events, job, activity=activity))

    def _cut_off_with_next_heartbeat(self, activity: Activity) -> None:
        """Only an attempt that sends heartbeats hears of its cancellation."""
        if activity.heartbeat and activity.call is not None:
            longest = min(0.8 * activity.heartbeat, HEARTBEAT_THROTTLE_S * SECOND)
            delay = int(longest * self._engine.random.random())
            self._after(activity, delay, activity.call.cut_off)


def _failure(activity: Activity, cause: Failure, state: "RetryState.ValueType") -> Failure:
    return failures.of_activity(
        cause, effect=activity.effect, activity_id=activity.activity_id, state=state
    )


def _micros(duration: Duration) -> int:
    return duration.seconds * SECOND + duration.nanos // 1000


def _is_at(activity: Activity, attempt: int, state: str) -> bool:
    return (
        activity.attempt == attempt
        and activity.state == state
        and activity.run.activities.get(activity.seq) is activity
    )


def _cancel(activity: Activity) -> None:
    for due in (activity.due, activity.silence):
        if due is not None:
            due.cancel()
    activity.due = activity.silence = None
