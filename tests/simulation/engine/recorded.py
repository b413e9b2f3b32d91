"""A recorded history, told to the engine's own instance as Core tells it to a worker process.

The commands of each workflow task must be the events that followed it. A history of a real server
so shows whether the engine takes commands as Core and the server do, and with it each value that
the workflow has computed: arguments, time limits, retry policies, results.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_commands import ScheduleLocalActivity
from temporalio.client import WorkflowHistory

from tests.simulation.engine import failures
from tests.simulation.engine.commands import Commands, LocalEnd
from tests.simulation.engine.events import (
    EVENTS,
    VERSIONS,
    agrees,
    facts_of_command,
    facts_of_event,
    is_command,
    marked_local,
    name_of,
    patch_of,
    told_by,
)
from tests.simulation.engine.execution import Job, Run
from tests.simulation.engine.instances import BEGIN_US, Instance
from tests.simulation.engine.replay import concerns
from tests.simulation.engine.values import Values


@dataclass
class _Task:
    """A completed workflow task: what it has told, and the events that its commands have become."""

    started: HistoryEvent
    news: list[HistoryEvent]
    commands: list[HistoryEvent] = field(default_factory=list)


def differences(history: WorkflowHistory, workflows: Mapping[str, type]) -> list[str]:
    """Where the engine's commands are not the events that followed; workflows: by their names."""
    return _Told(history, workflows).differences()


class _Told:
    """One instance, and the numbers of what its history has begun, by the ids of the events."""

    def __init__(self, history: WorkflowHistory, workflows: Mapping[str, type]) -> None:
        self._tasks = _tasks(history.events)
        run = _run(history)
        self._instance = Instance(run, workflows[run.workflow], Values(encoded=True))
        self._run = run
        self._begun: dict[int, Any] = {}

    def differences(self) -> list[str]:
        """Those of the first task that differs: what follows it would not fit either."""
        found: list[str] = []
        for task in self._tasks:
            at = f"{self._run.workflow_id}, task started with event {task.started.event_id}"
            try:
                commands = self._tell(task)
            except _TaskFailedError as failure:
                found = [f"{at}: failed: {failure}"]
            else:
                found = [f"{at}: {what}" for what in self._compare(task, commands)]
            if found:
                break
        self._instance.evict()
        return found

    def _tell(self, task: _Task) -> Commands:
        """One activation for all that has happened, then one for each round of local answers."""
        commands = Commands()
        patches = [patch for event in task.commands if (patch := patch_of(event))]
        jobs = [*map(_patched, patches), *(self._job(event) for event in task.news)]
        ends = [event for event in task.commands if marked_local(event)]
        at = task.started.event_time
        while True:
            told = [job for job in jobs if concerns(self._instance, job)]
            if told:
                self._activate(task, commands, told, at)
            jobs, commands.told = commands.told, []
            due = [
                one
                for one in ends
                if marked_local(one)["activation_index"] <= commands.activations
                and ("local", marked_local(one)["seq"]) in self._instance.open
            ]
            for event in due:
                ends.remove(event)
                marked = marked_local(event)
                at = max(at, Timestamp(**marked["complete_time"]), key=Timestamp.ToNanoseconds)
                jobs.append(self._local_job(event, commands))
            if not jobs:
                return commands

    def _activate(self, task: _Task, commands: Commands, jobs: list[Job], at: Timestamp) -> None:
        begun = task.started.workflow_task_started_event_attributes
        most = 0 if begun.suggest_continue_as_new else 10**9
        flags = tuple(self._run.flags)
        activation = self._instance.activation(jobs, 0, task.started.event_id, most, flags)
        activation.timestamp = at
        activation.is_replaying = True
        activation.history_size_bytes = begun.history_size_bytes
        answer = self._instance.activate(activation)
        if answer.HasField("failed"):
            raise _TaskFailedError(answer.failed.failure.message)
        commands.read(answer.successful, self._instance)

    def _compare(self, task: _Task, commands: Commands) -> Iterable[str]:
        given = list(commands.sent.values())
        for (kind, what), event in zip(given, task.commands, strict=False):
            self._begun[event.event_id] = what
            if name_of(event) != EVENTS[kind]:
                yield f"{kind}, and event {event.event_id} is {name_of(event)}"
                return
            wanted, recorded = facts_of_command(kind, what), facts_of_event(kind, event)
            for name, value in wanted.items():
                if not agrees(recorded[name], _known_then(value, recorded[name])):
                    other = recorded[name]
                    yield f"{kind} with {name} {value}, and event {event.event_id} has {other}"
        if len(given) != len(task.commands):
            kinds = [kind for kind, _ in given]
            yield f"{kinds}, and the history has {[name_of(one) for one in task.commands]}"

    # ── what has happened, as Core tells it ──

    def _job(self, event: HistoryEvent) -> Job:
        job, told = Job(), told_by(event)
        kind = name_of(event)
        if kind == "WorkflowExecutionStarted":
            begin = job.initialize_workflow
            begin.workflow_type, begin.workflow_id = self._run.workflow, self._run.workflow_id
            begin.arguments.extend(told.input.payloads)
            begin.first_execution_run_id, begin.attempt = told.first_execution_run_id, 1
            begin.start_time.CopyFrom(event.event_time)
        elif kind == "WorkflowExecutionSignaled":
            job.signal_workflow.signal_name = told.signal_name
            job.signal_workflow.input.extend(told.input.payloads)
        elif kind == "WorkflowExecutionCancelRequested":
            job.cancel_workflow.SetInParent()
        elif kind == "TimerFired":
            job.fire_timer.seq = self._begun[told.started_event_id].seq
        elif kind.startswith("ActivityTask"):
            self._resolve(job.resolve_activity, kind, told)
        else:
            resolved = job.resolve_signal_external_workflow
            resolved.seq = self._begun[told.initiated_event_id].seq
            if kind == "SignalExternalWorkflowExecutionFailed":
                resolved.failure.CopyFrom(failures.of_lost_signal())
        return job

    def _resolve(self, resolved: Any, kind: str, told: Any) -> None:
        asked = self._begun[told.scheduled_event_id]
        resolved.seq = asked.seq
        if kind == "ActivityTaskCompleted":
            resolved.result.completed.result.CopyFrom(told.result.payloads[0])
            return
        is_canceled = kind == "ActivityTaskCanceled"
        cause = failures.of_cancellation() if is_canceled else told.failure
        state = failures.CANCEL_REQUESTED if is_canceled else told.retry_state
        failure = failures.of_activity(
            cause, effect=asked.activity_type, activity_id=asked.activity_id, state=state
        )
        outcome = resolved.result.cancelled if is_canceled else resolved.result.failed
        outcome.failure.CopyFrom(failure)

    def _local_job(self, event: HistoryEvent, commands: Commands) -> Job:
        """A local activity ends as its marker says; its own marker follows what was sent before."""
        marked, marker = marked_local(event), event.marker_recorded_event_attributes
        asked: ScheduleLocalActivity = self._instance.open["local", marked["seq"]]
        job = Job()
        resolved = job.resolve_activity
        resolved.seq, resolved.is_local = asked.seq, True
        if "result" in marker.details:
            result: Payload = marker.details["result"].payloads[0]
            resolved.result.completed.result.CopyFrom(result)
        else:
            resolved.result.failed.failure.CopyFrom(marker.failure)
        end = LocalEnd(asked, job, marked["activation_index"], marked["attempt"])
        commands.send("local_marker", end)
        return job


class _TaskFailedError(Exception):
    """The workflow has raised where the history goes on."""


def _known_then(value: Any, recorded: Any) -> Any:
    """A retry policy without the types of failure that no retry mends and that came later: Core
    compares no policies, and an activity that is retried asks with the policy that was recorded."""
    if not isinstance(value, dict) or "non_retryable" not in value:
        return value
    known = [each for each in value["non_retryable"] if each in recorded["non_retryable"]]
    return {**value, "non_retryable": known}


# ── reading a history ───────────────────────────────────────────────────────────────────────

_NEWS = frozenset(
    {
        *(f"WorkflowExecution{what}" for what in ("Started", "Signaled", "CancelRequested")),
        *(f"ActivityTask{end}" for end in ("Completed", "Failed", "TimedOut", "Canceled")),
        "TimerFired",
        "ExternalWorkflowExecutionSignaled",
        "SignalExternalWorkflowExecutionFailed",
    }
)
"""What a workflow is told of."""


def _tasks(events: Iterable[HistoryEvent]) -> list[_Task]:
    tasks: list[_Task] = []
    news: list[HistoryEvent] = []
    started = HistoryEvent()
    for event in events:
        kind = name_of(event)
        if kind in _NEWS:
            news.append(event)
        elif kind == "WorkflowTaskStarted":
            started = event
        elif kind == "WorkflowTaskCompleted":
            tasks.append(_Task(started, news))
            news = []
        elif is_command(event) and not _is_of_patch(event):
            tasks[-1].commands.append(event)
    return tasks


def _is_of_patch(event: HistoryEvent) -> bool:
    """Whether Core has added this event to the marker of a patch."""
    fields = event.upsert_workflow_search_attributes_event_attributes.search_attributes
    return set(fields.indexed_fields) == {VERSIONS}


def _run(history: WorkflowHistory) -> Run:
    first = history.events[0]
    told = first.workflow_execution_started_event_attributes
    return Run(
        workflow_id=told.workflow_id or history.workflow_id,
        run_id=told.original_execution_run_id,
        workflow=told.workflow_type.name,
        argument=told.input.payloads[0],
        attributes={},
        started_at=_micros(first),
        listed_from=0,
        first_run_id=told.first_execution_run_id,
        continued_from=told.continued_execution_run_id,
    )


def _patched(patch: str) -> Job:
    job = Job()
    job.notify_has_patch.patch_id = patch
    return job


def _micros(event: HistoryEvent) -> int:
    return event.event_time.ToMicroseconds() - BEGIN_US
