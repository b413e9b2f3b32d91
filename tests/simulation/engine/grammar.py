"""What holds in each history of Temporal's server: the rules of README.md, as far as events show.

The histories that a real server has recorded and those that the engine writes are read by the same
rules, so that the engine cannot order, limit or repeat things in a way of its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.enums.v1 import RetryState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from tests.simulation.engine import failures
from tests.simulation.engine.activities import retries_of
from tests.simulation.engine.events import (
    VERSIONS,
    is_command,
    marked_local,
    name_of,
    patch_of,
    told_by,
)

CLOSING = frozenset(
    f"WorkflowExecution{end}"
    for end in ("Completed", "Failed", "Canceled", "ContinuedAsNew", "Terminated", "TimedOut")
)
OUTCOMES = frozenset(
    f"ActivityTask{end}" for end in ("Completed", "Failed", "TimedOut", "Canceled")
)
TASK_ENDS = frozenset(f"WorkflowTask{end}" for end in ("Completed", "Failed", "TimedOut"))
ROUNDED_S = 0.002
"""The server keeps the times of timers in milliseconds."""
LATE_S = 1.0
"""How much later than a time limit the server may write that it has passed."""
HELD_S = 5.0
"""A task is followed by another at once, when Core has held it for its local activities."""


def broken_rules(history: WorkflowHistory) -> list[str]:
    """The rules that this history breaks, each with the number of the event."""
    read = _Read()
    for event in history.events:
        read.event(event)
    read.end()
    return read.broken


def broken_chains(histories: Iterable[WorkflowHistory]) -> list[str]:
    """Runs that continue another one, which does not say so."""
    first = {one.run_id: one.events[0] for one in histories}
    found = []
    for history in histories:
        last = history.events[-1].workflow_execution_continued_as_new_event_attributes
        following = first.get(last.new_execution_run_id)
        if following is not None:
            told = following.workflow_execution_started_event_attributes
            if told.continued_execution_run_id != history.run_id:
                found.append(f"{history.workflow_id}: {last.new_execution_run_id} does not follow")
    return found


@dataclass
class _Activity:
    event: HistoryEvent
    start: HistoryEvent | None = None
    is_cancel_requested: bool = False

    @property
    def told(self) -> Any:
        return self.event.activity_task_scheduled_event_attributes


@dataclass
class _Read:
    """What the events so far have begun and not ended.

    task: the event that schedules the present workflow task; started: the one that starts it;
    block: the id of the completed task whose commands are being written; untold: whether something
    has happened that no task tells; reason: why a task may be scheduled now.
    """

    broken: list[str] = field(default_factory=list)
    count: int = 0
    latest_s: float = 0.0
    closed_by: str = ""
    task: HistoryEvent | None = None
    started: HistoryEvent | None = None
    block: int = 0
    held_s: float = 0.0
    untold: bool = False
    reason: str = "a new run"
    outcomes_have_begun: bool = False
    timers: dict[int, HistoryEvent] = field(default_factory=dict)
    activities: dict[int, _Activity] = field(default_factory=dict)
    signals: set[int] = field(default_factory=set)
    locals: set[int] = field(default_factory=set)
    told_in: int = 0
    patches: list[str] = field(default_factory=list)
    unlisted: bool = False
    is_cancel_requested: bool = False

    def event(self, event: HistoryEvent) -> None:
        self.count += 1
        kind = name_of(event)
        self._check(event.event_id == self.count, event, "the number does not follow")
        self._check(not self.closed_by, event, f"it follows {self.closed_by}")
        if self.started is not None:
            self._check(
                kind in TASK_ENDS, event, "nothing is written while a task is with a worker"
            )
        if self.unlisted:
            self._is_listed(event)
        if is_command(event):
            of = told_by(event).workflow_task_completed_event_id
            self._check(of == self.block > 0, event, "a command does not follow its task")
        elif kind != "WorkflowTaskCompleted":
            self.block = 0
        if is_command(event) or kind.startswith("WorkflowTask"):
            self._check(_at(event) >= self.latest_s, event, "time goes back")
            self.latest_s = _at(event)
        rule = _RULES.get(kind)
        if rule is None:
            self._check(kind in CLOSING, event, "the engine has no such event")
        else:
            rule(self, event, told_by(event))
        if kind in CLOSING:
            self.closed_by = kind

    def end(self) -> None:
        is_new = self.count == 1
        if self.untold and not self.closed_by and not is_new:
            self.broken.append("the end: no task tells what has happened")

    def _check(self, holds: bool, event: HistoryEvent, otherwise: str) -> None:
        if not holds:
            self.broken.append(f"{event.event_id} {name_of(event)}: {otherwise}")

    def _news(self, event: HistoryEvent) -> None:
        """Told by the next task; of what was buffered, the outcomes of activities come last."""
        if self.task is not None:
            return
        is_outcome = name_of(event) in OUTCOMES
        self._check(
            is_outcome or not self.outcomes_have_begun, event, "outcomes of activities come last"
        )
        self.outcomes_have_begun = is_outcome
        self.untold, self.reason = True, name_of(event)

    # ── the run ──

    def begin(self, event: HistoryEvent, _told: Any) -> None:
        self._check(event.event_id == 1, event, "a run begins once")
        self.untold = True

    def hear(self, event: HistoryEvent, _told: Any) -> None:
        self._check(event.event_id > 1, event, "the run has not begun")
        self._news(event)

    def ask_to_cancel(self, event: HistoryEvent, _told: Any) -> None:
        self._check(not self.is_cancel_requested, event, "a run is cancelled once")
        self.is_cancel_requested = True
        self._news(event)

    def cancel(self, event: HistoryEvent, _told: Any) -> None:
        self._check(self.is_cancel_requested, event, "nobody has cancelled it")

    # ── workflow tasks ──

    def schedule_task(self, event: HistoryEvent, _told: Any) -> None:
        self._check(self.task is None, event, "a run has one task at a time")
        is_held = self.held_s >= HELD_S
        self._check(bool(self.reason) or is_held, event, "nothing has happened that it could tell")
        self.task, self.untold, self.reason = event, False, ""
        self.outcomes_have_begun = False

    def start_task(self, event: HistoryEvent, told: Any) -> None:
        self._is_of_task(event, told)
        self.started = event

    def end_task(self, event: HistoryEvent, told: Any) -> None:
        self._is_of_task(event, told)
        if self.started is not None:
            self._check(told.started_event_id == self.started.event_id, event, "another start")
        kind = name_of(event)
        self.held_s = 0.0
        if kind == "WorkflowTaskCompleted":
            self._check(self.started is not None, event, "it was not started")
            self.held_s = _at(event) - _at(self.started) if self.started is not None else 0.0
            self.block, self.told_in = event.event_id, 0
        else:
            self.reason = kind
        self.task = self.started = None

    def _is_of_task(self, event: HistoryEvent, told: Any) -> None:
        scheduled = 0 if self.task is None else self.task.event_id
        self._check(told.scheduled_event_id == scheduled, event, "it is of another task")

    # ── timers ──

    def start_timer(self, event: HistoryEvent, _told: Any) -> None:
        self.timers[event.event_id] = event

    def fire_timer(self, event: HistoryEvent, told: Any) -> None:
        begun = self.timers.pop(told.started_event_id, None)
        self._check(begun is not None, event, "no such timer")
        if begun is not None:
            limit = begun.timer_started_event_attributes.start_to_fire_timeout
            due = _at(begun) + _seconds(limit)
            self._check(_at(event) >= due - ROUNDED_S, event, "it fires too early")
        self._news(event)

    def cancel_timer(self, event: HistoryEvent, told: Any) -> None:
        begun = self.timers.pop(told.started_event_id, None)
        self._check(begun is not None, event, "no such timer")

    # ── activities ──

    def schedule_activity(self, event: HistoryEvent, _told: Any) -> None:
        self.activities[event.event_id] = _Activity(event)

    def start_activity(self, event: HistoryEvent, told: Any) -> None:
        activity = self.activities.get(told.scheduled_event_id)
        self._check(activity is not None and activity.start is None, event, "no such activity")
        if activity is None:
            return
        activity.start = event
        retries = retries_of(activity.told.retry_policy)
        most = retries.attempts or told.attempt
        self._check(1 <= told.attempt <= most, event, f"there are {retries.attempts} attempts")
        pauses_s = sum(
            retries.pause(number, told.last_failure) / 1e6 for number in range(1, told.attempt)
        )
        if not told.last_failure.application_failure_info.HasField("next_retry_delay"):
            waited_s = _at(event) - _at(activity.event)
            self._check(waited_s >= pauses_s - ROUNDED_S, event, "the pauses were too short")

    def end_activity(self, event: HistoryEvent, told: Any) -> None:
        activity = self.activities.pop(told.scheduled_event_id, None)
        self._check(activity is not None, event, "no such activity")
        if activity is not None:
            start = 0 if activity.start is None else activity.start.event_id
            self._check(told.started_event_id == start, event, "it is of another attempt")
            if activity.start is not None:
                limit_s = _seconds(activity.told.start_to_close_timeout) + LATE_S
                ran_s = _at(event) - _at(activity.start)
                self._check(not 0 < limit_s < ran_s, event, "it ends after its time limit")
            self._ends_rightly(event, told, activity)
        self._news(event)

    def _ends_rightly(self, event: HistoryEvent, told: Any, activity: _Activity) -> None:
        kind = name_of(event)
        if kind == "ActivityTaskCanceled":
            self._check(activity.is_cancel_requested, event, "nobody has cancelled it")
        if kind not in ("ActivityTaskFailed", "ActivityTaskTimedOut"):
            return
        retries = retries_of(activity.told.retry_policy)
        attempt = (
            activity.start.activity_task_started_event_attributes.attempt if activity.start else 1
        )
        is_last = 0 < retries.attempts <= attempt
        goes_on = failures.is_retryable(told.failure, retries.non_retryable) and not is_last
        reasons: dict[int, bool] = {
            RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED: is_last,
            RetryState.RETRY_STATE_NON_RETRYABLE_FAILURE: not goes_on,
            RetryState.RETRY_STATE_CANCEL_REQUESTED: activity.is_cancel_requested,
            RetryState.RETRY_STATE_TIMEOUT: _is_limited(activity),
        }
        state = RetryState.Name(told.retry_state)
        self._check(reasons.get(told.retry_state, not goes_on), event, f"its end is no {state}")

    def cancel_activity(self, event: HistoryEvent, told: Any) -> None:
        activity = self.activities.get(told.scheduled_event_id)
        if activity is not None:
            self._check(not activity.is_cancel_requested, event, "it is cancelled once")
            activity.is_cancel_requested = True

    # ── markers and signals ──

    def mark(self, event: HistoryEvent, _told: Any) -> None:
        if local := marked_local(event):
            self._check(local["seq"] not in self.locals, event, "it has ended before")
            self.locals.add(local["seq"])
            told_in = local["activation_index"]
            self._check(told_in >= self.told_in, event, "it was told before the last one")
            self.told_in = told_in
        elif patch := patch_of(event):
            self._check(patch not in self.patches, event, f"{patch} is marked once")
            self.patches.append(patch)
            self.unlisted = True

    def _is_listed(self, event: HistoryEvent) -> None:
        """The marker of a patch is followed by the search attribute that names it."""
        self.unlisted = False
        fields = event.upsert_workflow_search_attributes_event_attributes.search_attributes
        listed = fields.indexed_fields[VERSIONS].data.decode()
        self._check(f'"{self.patches[-1]}' in listed, event, "the patch is not listed")

    def signal(self, event: HistoryEvent, _told: Any) -> None:
        self.signals.add(event.event_id)

    def end_signal(self, event: HistoryEvent, told: Any) -> None:
        self._check(told.initiated_event_id in self.signals, event, "no such signal")
        self.signals.discard(told.initiated_event_id)
        self._news(event)

    def nothing(self, _event: HistoryEvent, _told: Any) -> None:
        """What holds of it holds of all commands."""


_RULES: dict[str, Callable[[_Read, HistoryEvent, Any], None]] = {
    "WorkflowExecutionStarted": _Read.begin,
    "WorkflowExecutionSignaled": _Read.hear,
    "WorkflowExecutionCancelRequested": _Read.ask_to_cancel,
    "WorkflowExecutionCanceled": _Read.cancel,
    "WorkflowTaskScheduled": _Read.schedule_task,
    "WorkflowTaskStarted": _Read.start_task,
    **dict.fromkeys(TASK_ENDS, _Read.end_task),
    "TimerStarted": _Read.start_timer,
    "TimerFired": _Read.fire_timer,
    "TimerCanceled": _Read.cancel_timer,
    "ActivityTaskScheduled": _Read.schedule_activity,
    "ActivityTaskStarted": _Read.start_activity,
    "ActivityTaskCancelRequested": _Read.cancel_activity,
    **dict.fromkeys(OUTCOMES, _Read.end_activity),
    "MarkerRecorded": _Read.mark,
    "UpsertWorkflowSearchAttributes": _Read.nothing,
    "SignalExternalWorkflowExecutionInitiated": _Read.signal,
    "ExternalWorkflowExecutionSignaled": _Read.end_signal,
    "SignalExternalWorkflowExecutionFailed": _Read.end_signal,
}


def _is_limited(activity: _Activity) -> bool:
    return _seconds(activity.told.schedule_to_close_timeout) > 0


def _at(event: HistoryEvent) -> float:
    return event.event_time.ToNanoseconds() / 1e9


def _seconds(duration: Any) -> float:
    return float(duration.ToNanoseconds() / 1e9)
