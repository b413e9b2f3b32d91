"""The runs of a played life as Temporal's own histories, one JSON file each.

`WorkflowHistory.from_json` reads them, the SDK's `Replayer` replays them, and Temporal's user
interface opens them. The engine keeps the type and time of each event, and what it tells, in
`Run.kept`; whole events are made of it only here, so that a life without a record pays nothing.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import temporalio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.api.enums.v1 import (
    ContinueAsNewInitiator,
    EventType,
    SignalExternalWorkflowExecutionFailedCause,
    TaskQueueKind,
    TimeoutType,
    WorkflowTaskFailedCause,
)
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.client import WorkflowHistory

from tests.simulation.engine.commands import LocalEnd
from tests.simulation.engine.events import LIMITS, VERSIONS, filled_limits
from tests.simulation.engine.execution import (
    TASK_LIMIT_S,
    Happening,
    KeptEvents,
    Run,
    TaskDone,
    TaskFailed,
)
from tests.simulation.engine.instances import BEGIN_US
from workflows.contracts import queues

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine

CORE_FLAGS = (1, 2, 3, 4)
"""The flags of its own that Core writes into the first completed task of a run."""
SDK_NAME = "temporal-python"
IDENTITY = "worker"


def write_histories(engine: "Engine", directory: Path) -> int:
    """Write `WORKFLOW-ID.RUN-ID.json` for each run; return how many.

    A run that the server has lost and found again has a file for each of its two courses.

    Raises: ValueError, when the engine has kept no histories, or values that are not encoded.
    """
    if not engine.keeps_histories or not engine.values.is_encoded:
        raise ValueError("histories need an engine with keeps_histories and encoded")
    courses: Counter[str] = Counter()
    for run in engine.server.kept:
        name = re.sub(r"[^\w.-]+", "-", f"{run.workflow_id}.{run.run_id}")
        courses[name] += 1
        course = f".{courses[name]}" if courses[name] > 1 else ""
        history = history_of(run, engine.limits.suggested_events)
        (directory / f"{name}{course}.json").write_text(history.to_json())
    return len(engine.server.kept)


def history_of(run: Run, suggested_events: int) -> WorkflowHistory:
    """The whole history of a run. suggested_events: from where on a new run is suggested.

    Raises: ValueError, when it was not kept.
    """
    if run.kept is None:
        raise ValueError(f"no history was kept of {run.workflow_id}")
    written = _Written(run, run.kept, suggested_events)
    for number, kind in enumerate(run.kept, 1):
        written.add(number, kind)
    return WorkflowHistory(run.workflow_id, written.events)


@dataclass
class _Written:
    """The events of a run, as far as they are written.

    task: the ids of the present workflow task's events, 0: there is none; activities, timers,
    signals: the ids of the events that have begun them, by their numbers in the run.
    """

    run: Run
    kept: KeptEvents
    suggested_events: int
    events: list[HistoryEvent] = field(default_factory=list)
    scheduled: int = 0
    started: int = 0
    completed: int = 0
    flags: tuple[int, ...] = ()
    patches: list[str] = field(default_factory=list)
    activities: dict[int, int] = field(default_factory=dict)
    timers: dict[int, int] = field(default_factory=dict)
    signals: dict[int, int] = field(default_factory=dict)
    started_activity: int = 0

    def add(self, number: int, kind: str) -> None:
        event = HistoryEvent(event_id=number, task_id=number)
        event.event_time.CopyFrom(_time(self.kept.times[number - 1]))
        snake = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
        event.event_type = EventType.Value(f"EVENT_TYPE_{snake.upper()}")
        attributes = getattr(event, f"{snake}_event_attributes")
        attributes.SetInParent()
        self.events.append(event)
        fact = self.kept.facts.get(number)
        if "workflow_task_completed_event_id" in attributes.DESCRIPTOR.fields_by_name:
            attributes.workflow_task_completed_event_id = self.completed
        _WRITERS[kind](self, event, attributes, fact)

    # ── the run ──

    def begin(self, event: HistoryEvent, told: Any, _fact: Any) -> None:
        run = self.run
        told.workflow_type.name = run.workflow
        told.workflow_id = run.workflow_id
        told.task_queue.CopyFrom(_queue(queues.MAIN))
        told.input.payloads.append(run.argument)
        told.workflow_task_timeout.CopyFrom(_seconds(TASK_LIMIT_S))
        told.original_execution_run_id = run.run_id
        told.first_execution_run_id = run.first_run_id
        told.identity, told.attempt = IDENTITY, 1
        for name, value in run.begun_with.items():
            told.search_attributes.indexed_fields[name].CopyFrom(_keyword(value))
        if run.continued_from:
            told.continued_execution_run_id = run.continued_from
            told.initiator = ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_WORKFLOW

    def end(self, _event: HistoryEvent, told: Any, fact: Any) -> None:
        """Completed, failed or canceled, by the command of this kind."""
        for name in ("result", "failure"):
            if hasattr(fact, name) and fact.HasField(name):
                value = getattr(fact, name)
                outcome = _payloads([value]) if name == "result" else value
                getattr(told, name).CopyFrom(outcome)

    def continue_as_new(self, _event: HistoryEvent, told: Any, fact: Any) -> None:
        told.new_execution_run_id = self.run.continued_as
        told.workflow_type.name = fact.workflow_type or self.run.workflow
        told.task_queue.CopyFrom(_queue(queues.MAIN))
        told.input.CopyFrom(_payloads(fact.arguments))
        told.workflow_task_timeout.CopyFrom(_seconds(TASK_LIMIT_S))
        told.initiator = ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_WORKFLOW

    def terminate(self, _event: HistoryEvent, told: Any, _fact: Any) -> None:
        told.identity = self.run.terminated_by

    def ask_to_cancel(self, _event: HistoryEvent, told: Any, _fact: Any) -> None:
        told.identity = IDENTITY

    def hear(self, _event: HistoryEvent, told: Any, fact: Happening) -> None:
        assert fact.job is not None
        signal = fact.job.signal_workflow
        told.signal_name, told.identity = signal.signal_name, IDENTITY
        told.input.CopyFrom(_payloads(signal.input))

    # ── workflow tasks ──

    def schedule_task(self, event: HistoryEvent, told: Any, _fact: Any) -> None:
        self.scheduled, self.started = event.event_id, 0
        told.task_queue.CopyFrom(_queue(queues.MAIN))
        told.start_to_close_timeout.CopyFrom(_seconds(TASK_LIMIT_S))
        told.attempt = 1

    def start_task(self, event: HistoryEvent, told: Any, _fact: Any) -> None:
        self.started = event.event_id
        told.scheduled_event_id = self.scheduled
        told.identity, told.request_id = IDENTITY, f"task-{event.event_id}"
        told.history_size_bytes = event.event_id * 400
        told.suggest_continue_as_new = event.event_id >= self.suggested_events

    def complete_task(self, event: HistoryEvent, told: Any, fact: TaskDone) -> None:
        """Its process and attempt are also told by the events before it."""
        is_first = not self.completed
        self.completed = event.event_id
        self._of_task(told)
        told.identity = fact.identity
        scheduled, started = self.events[self.scheduled - 1], self.events[self.started - 1]
        scheduled.workflow_task_scheduled_event_attributes.attempt = fact.attempt
        started.workflow_task_started_event_attributes.identity = fact.identity
        if fact.attempt > 1:
            scheduled.event_time.CopyFrom(_time(fact.began_at))
            started.event_time.CopyFrom(_time(fact.began_at))
        if is_first:
            told.sdk_metadata.core_used_flags.extend(CORE_FLAGS)
            told.sdk_metadata.sdk_name = SDK_NAME
            told.sdk_metadata.sdk_version = temporalio.__version__
        told.sdk_metadata.lang_used_flags.extend(fact.flags[len(self.flags) :])
        self.flags = fact.flags

    def fail_task(self, _event: HistoryEvent, told: Any, fact: TaskFailed) -> None:
        self._of_task(told)
        told.identity, told.failure.message = IDENTITY, fact.why
        told.cause = WorkflowTaskFailedCause.Value(f"WORKFLOW_TASK_FAILED_CAUSE_{fact.cause}")

    def time_out_task(self, _event: HistoryEvent, told: Any, _fact: Any) -> None:
        self._of_task(told)
        told.timeout_type = (
            TimeoutType.TIMEOUT_TYPE_START_TO_CLOSE
            if self.started
            else TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
        )

    def _of_task(self, told: Any) -> None:
        told.scheduled_event_id, told.started_event_id = self.scheduled, self.started

    # ── activities ──

    def schedule_activity(self, event: HistoryEvent, told: Any, fact: Any) -> None:
        self.activities[fact.seq] = event.event_id
        told.activity_id, told.activity_type.name = fact.activity_id, fact.activity_type
        told.task_queue.CopyFrom(_queue(fact.task_queue))
        told.input.CopyFrom(_payloads(fact.arguments))
        for name, limit_s in zip(LIMITS, filled_limits(fact), strict=True):
            getattr(told, f"{name}_timeout").CopyFrom(_seconds(limit_s))
        told.retry_policy.CopyFrom(fact.retry_policy)

    def start_activity(self, event: HistoryEvent, told: Any, fact: Happening) -> None:
        """The server writes it only when the activity has ended, with the time of its start."""
        activity = fact.activity
        assert activity is not None
        self.started_activity = event.event_id
        event.event_time.CopyFrom(_time(activity.started_at))
        told.scheduled_event_id = self.activities[activity.seq]
        told.request_id = f"attempt-{event.event_id}"
        told.attempt = activity.attempt
        told.identity = IDENTITY
        if activity.last_failure is not None:
            told.last_failure.CopyFrom(activity.last_failure)

    def end_activity(self, event: HistoryEvent, told: Any, fact: Happening | None) -> None:
        """What is told of an activity that was started stands with the event of its start."""
        happening: Happening = fact or self.kept.facts[event.event_id - 1]
        assert happening.job is not None
        resolved = happening.job.resolve_activity
        told.scheduled_event_id = self.activities[resolved.seq]
        if fact is None:
            told.started_event_id = self.started_activity
        if resolved.result.HasField("completed"):
            told.result.CopyFrom(_payloads([resolved.result.completed.result]))
            told.identity = IDENTITY
        elif resolved.result.HasField("failed"):
            failure = resolved.result.failed.failure
            told.retry_state = failure.activity_failure_info.retry_state
            told.failure.CopyFrom(failure.cause)
        else:
            told.identity = IDENTITY

    def cancel_activity(self, _event: HistoryEvent, told: Any, fact: Any) -> None:
        told.scheduled_event_id = self.activities[fact.seq]

    # ── timers, markers, signals to others ──

    def start_timer(self, event: HistoryEvent, told: Any, fact: Any) -> None:
        self.timers[fact.seq] = event.event_id
        told.timer_id = str(fact.seq)
        told.start_to_fire_timeout.CopyFrom(fact.start_to_fire_timeout)

    def fire_timer(self, _event: HistoryEvent, told: Any, fact: Happening) -> None:
        assert fact.job is not None
        self._of_timer(told, fact.job.fire_timer.seq)

    def cancel_timer(self, _event: HistoryEvent, told: Any, fact: Any) -> None:
        self._of_timer(told, fact.seq)
        told.identity = IDENTITY

    def _of_timer(self, told: Any, seq: int) -> None:
        told.timer_id, told.started_event_id = str(seq), self.timers[seq]

    def mark(self, event: HistoryEvent, told: Any, fact: Any) -> None:
        if isinstance(fact, LocalEnd):
            self._mark_local(event, told, fact)
            return
        told.marker_name = "core_patch"
        data = {"id": fact.patch_id, "deprecated": fact.deprecated}
        told.details["patch-data"].CopyFrom(_payloads([_json(data)]))
        self.patches.append(f"{fact.patch_id}")

    def _mark_local(self, event: HistoryEvent, told: Any, end: LocalEnd) -> None:
        told.marker_name = "core_local_activity"
        at = event.event_time
        data = {
            "seq": end.asked.seq,
            "attempt": end.attempt,
            "activity_id": end.asked.activity_id,
            "activity_type": end.asked.activity_type,
            "complete_time": _parts(_time(end.ended_at) if end.ended_at else at),
            "backoff": None,
            "original_schedule_time": _parts(_time(end.began_at) if end.ended_at else at),
            "activation_index": end.activation,
        }
        told.details["data"].CopyFrom(_payloads([_json(data)]))
        result = end.job.resolve_activity.result
        if result.HasField("completed"):
            told.details["result"].CopyFrom(_payloads([result.completed.result]))
        elif result.HasField("failed"):
            told.failure.CopyFrom(result.failed.failure)
        else:
            told.failure.CopyFrom(result.cancelled.failure)

    def upsert(self, event: HistoryEvent, told: Any, fact: Any) -> None:
        """Without a command of its own it follows the marker of a patch."""
        if fact is None:
            value = _json(self.patches)
            value.metadata["type"] = b"KeywordList"
            told.search_attributes.indexed_fields[VERSIONS].CopyFrom(value)
        else:
            told.search_attributes.CopyFrom(fact.search_attributes)

    def signal_external(self, event: HistoryEvent, told: Any, fact: Any) -> None:
        self.signals[fact.seq] = event.event_id
        told.namespace = fact.workflow_execution.namespace
        told.workflow_execution.workflow_id = fact.workflow_execution.workflow_id
        told.workflow_execution.run_id = fact.workflow_execution.run_id
        told.signal_name = fact.signal_name
        told.input.CopyFrom(_payloads(fact.args))

    def signaled_external(self, _event: HistoryEvent, told: Any, fact: Happening) -> None:
        assert fact.job is not None
        resolved = fact.job.resolve_signal_external_workflow
        told.initiated_event_id = self.signals[resolved.seq]
        initiated = self.events[told.initiated_event_id - 1]
        asked = initiated.signal_external_workflow_execution_initiated_event_attributes
        told.workflow_execution.CopyFrom(asked.workflow_execution)
        told.namespace = asked.namespace
        if resolved.HasField("failure"):
            told.cause = SignalExternalWorkflowExecutionFailedCause.Value(
                "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED_CAUSE_"
                "EXTERNAL_WORKFLOW_EXECUTION_NOT_FOUND"
            )


_WRITERS: dict[str, Callable[[_Written, HistoryEvent, Any, Any], None]] = {
    "WorkflowExecutionStarted": _Written.begin,
    "WorkflowExecutionCompleted": _Written.end,
    "WorkflowExecutionFailed": _Written.end,
    "WorkflowExecutionCanceled": _Written.end,
    "WorkflowExecutionContinuedAsNew": _Written.continue_as_new,
    "WorkflowExecutionTerminated": _Written.terminate,
    "WorkflowExecutionCancelRequested": _Written.ask_to_cancel,
    "WorkflowExecutionSignaled": _Written.hear,
    "WorkflowTaskScheduled": _Written.schedule_task,
    "WorkflowTaskStarted": _Written.start_task,
    "WorkflowTaskCompleted": _Written.complete_task,
    "WorkflowTaskFailed": _Written.fail_task,
    "WorkflowTaskTimedOut": _Written.time_out_task,
    "ActivityTaskScheduled": _Written.schedule_activity,
    "ActivityTaskStarted": _Written.start_activity,
    "ActivityTaskCompleted": _Written.end_activity,
    "ActivityTaskFailed": _Written.end_activity,
    "ActivityTaskTimedOut": _Written.end_activity,
    "ActivityTaskCanceled": _Written.end_activity,
    "ActivityTaskCancelRequested": _Written.cancel_activity,
    "TimerStarted": _Written.start_timer,
    "TimerFired": _Written.fire_timer,
    "TimerCanceled": _Written.cancel_timer,
    "MarkerRecorded": _Written.mark,
    "UpsertWorkflowSearchAttributes": _Written.upsert,
    "SignalExternalWorkflowExecutionInitiated": _Written.signal_external,
    "ExternalWorkflowExecutionSignaled": _Written.signaled_external,
    "SignalExternalWorkflowExecutionFailed": _Written.signaled_external,
}


def _time(at: int) -> Timestamp:
    """The time that is so many microseconds of virtual time after the beginning."""
    time = Timestamp()
    time.FromMicroseconds(BEGIN_US + at)
    return time


def _parts(time: Timestamp) -> dict[str, int]:
    return {"seconds": time.seconds, "nanos": time.nanos}


def _seconds(seconds: float) -> Duration:
    duration = Duration()
    duration.FromMicroseconds(round(seconds * 1e6))
    return duration


def _queue(name: str) -> TaskQueue:
    return TaskQueue(name=name, kind=TaskQueueKind.TASK_QUEUE_KIND_NORMAL)


def _payloads(payloads: Iterable[Payload]) -> Payloads:
    return Payloads(payloads=payloads)


def _json(value: object) -> Payload:
    data = json.dumps(value, separators=(",", ":")).encode()
    return Payload(metadata={"encoding": b"json/plain"}, data=data)


def _keyword(value: object) -> Payload:
    payload = _json(value)
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    payload.metadata["type"] = b"KeywordList" if is_list else b"Keyword"
    return payload
