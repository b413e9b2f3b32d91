"""The events of a history, and what a command and its event both say.

What the server adds to an event by itself is added to the command as well: time limits that follow
from others.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

Facts = dict[str, Any]

EVENTS: dict[str, str] = {
    "start_timer": "TimerStarted",
    "cancel_timer": "TimerCanceled",
    "schedule_activity": "ActivityTaskScheduled",
    "request_cancel_activity": "ActivityTaskCancelRequested",
    "local_marker": "MarkerRecorded",
    "set_patch_marker": "MarkerRecorded",
    "upsert_workflow_search_attributes": "UpsertWorkflowSearchAttributes",
    "signal_external_workflow_execution": "SignalExternalWorkflowExecutionInitiated",
    "complete_workflow_execution": "WorkflowExecutionCompleted",
    "fail_workflow_execution": "WorkflowExecutionFailed",
    "cancel_workflow_execution": "WorkflowExecutionCanceled",
    "continue_as_new_workflow_execution": "WorkflowExecutionContinuedAsNew",
}
"""The kinds of commands, with the event that each becomes."""
VERSIONS = "TemporalChangeVersion"
"""The search attribute that names the patches of a run."""
LIMITS = ("schedule_to_close", "schedule_to_start", "start_to_close", "heartbeat")
"""The time limits of an activity."""


def name_of(event: HistoryEvent) -> str:
    """The type of an event, such as `TimerFired`."""
    words = EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").split("_")
    return "".join(word.title() for word in words)


def told_by(event: HistoryEvent) -> Any:
    """The attributes of an event, whatever its type."""
    return getattr(event, event.WhichOneof("attributes") or "")


def is_command(event: HistoryEvent) -> bool:
    """Whether a command of a workflow task has become this event."""
    return "workflow_task_completed_event_id" in told_by(event).DESCRIPTOR.fields_by_name


def marked_local(event: HistoryEvent) -> Facts:
    """What the marker of a local activity says; empty: the event is none."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != "core_local_activity":
        return {}
    found: Facts = json.loads(marker.details["data"].payloads[0].data)
    return found


def patch_of(event: HistoryEvent) -> str:
    """The patch that an event marks; empty: it marks none."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != "core_patch":
        return ""
    return str(json.loads(marker.details["patch-data"].payloads[0].data)["id"])


def facts_of_command(kind: str, what: Any) -> Facts:
    return _COMMANDS[kind](what)


def facts_of_event(kind: str, event: HistoryEvent) -> Facts:
    """The same of the event that a command of this kind becomes."""
    return _EVENTS[kind](event, told_by(event))


def agrees(recorded: Any, given: Any) -> bool:
    """Whether a value is the recorded one, but for what contracts have gained since.

    The models of a later release only gain fields with defaults, so a value of today may have more.
    """
    if isinstance(recorded, dict) and isinstance(given, dict):
        return all(name in given and agrees(one, given[name]) for name, one in recorded.items())
    if isinstance(recorded, list) and isinstance(given, list):
        return len(recorded) == len(given) and all(map(agrees, recorded, given))
    return bool(recorded == given)


# ── commands ──


def _values(payloads: Iterable[Payload]) -> list[Any]:
    return [json.loads(payload.data) if payload.data else None for payload in payloads]


def _timer(what: Any) -> Facts:
    return {"id": str(what.seq), "seconds": what.start_to_fire_timeout.ToSeconds()}


def _activity(what: Any) -> Facts:
    return {
        "id": what.activity_id,
        "type": what.activity_type,
        "queue": what.task_queue,
        "argument": _values(what.arguments),
        "limits": filled_limits(what),
        "retries": _retries(what.retry_policy),
    }


def _limits(message: Any) -> list[float]:
    """In seconds, in the order of `LIMITS`; 0: there is none."""
    return [getattr(message, f"{name}_timeout").ToMicroseconds() / 1e6 for name in LIMITS]


def filled_limits(asked: Any) -> list[float]:
    """As the server writes them: none is longer than the longer ones allow, or missing for it."""
    whole, waits, runs, silent = _limits(asked)
    if whole:
        waits, runs = (min(limit or whole, whole) for limit in (waits, runs))
    return [whole, waits, runs, min(silent, runs)]


def _retries(policy: Any) -> Facts:
    return {
        "first_s": policy.initial_interval.ToMilliseconds() / 1e3,
        "factor": policy.backoff_coefficient,
        "longest_s": policy.maximum_interval.ToMilliseconds() / 1e3,
        "attempts": policy.maximum_attempts,
        "non_retryable": list(policy.non_retryable_error_types),
    }


def _local(what: Any) -> Facts:
    return {
        "number": what.asked.seq,
        "id": what.asked.activity_id,
        "type": what.asked.activity_type,
        "activation": what.activation,
    }


def _signal(what: Any) -> Facts:
    return {
        "target": what.workflow_execution.workflow_id,
        "name": what.signal_name,
        "argument": _values(what.args),
    }


def _attributes(what: Any) -> Facts:
    fields = what.search_attributes.indexed_fields
    return {"values": dict(zip(fields, _values(fields.values()), strict=True))}


_COMMANDS: dict[str, Callable[[Any], Facts]] = {
    "start_timer": _timer,
    "cancel_timer": lambda what: {"id": str(what.seq)},
    "schedule_activity": _activity,
    "request_cancel_activity": lambda _: {},
    "local_marker": _local,
    "set_patch_marker": lambda what: {"patch": what.patch_id},
    "upsert_workflow_search_attributes": _attributes,
    "signal_external_workflow_execution": _signal,
    "complete_workflow_execution": lambda what: {"result": _values([what.result])},
    "fail_workflow_execution": lambda what: {"why": what.failure.message},
    "cancel_workflow_execution": lambda _: {},
    "continue_as_new_workflow_execution": lambda what: {"argument": _values(what.arguments)},
}

# ── their events ──


def _activity_of(_event: HistoryEvent, told: Any) -> Facts:
    return {
        "id": told.activity_id,
        "type": told.activity_type.name,
        "queue": told.task_queue.name,
        "argument": _values(told.input.payloads),
        "limits": _limits(told),
        "retries": _retries(told.retry_policy),
    }


def _local_of(event: HistoryEvent, _told: Any) -> Facts:
    marked = marked_local(event)
    return {
        "number": marked.get("seq"),
        "id": marked.get("activity_id"),
        "type": marked.get("activity_type"),
        "activation": marked.get("activation_index"),
    }


def _signal_of(_event: HistoryEvent, told: Any) -> Facts:
    return {
        "target": told.workflow_execution.workflow_id,
        "name": told.signal_name,
        "argument": _values(told.input.payloads),
    }


_EVENTS: dict[str, Callable[[HistoryEvent, Any], Facts]] = {
    "start_timer": lambda _, told: {
        "id": told.timer_id,
        "seconds": told.start_to_fire_timeout.ToSeconds(),
    },
    "cancel_timer": lambda _, told: {"id": told.timer_id},
    "schedule_activity": _activity_of,
    "request_cancel_activity": lambda _, __: {},
    "local_marker": _local_of,
    "set_patch_marker": lambda event, _: {"patch": patch_of(event)},
    "upsert_workflow_search_attributes": lambda _, told: _attributes(told),
    "signal_external_workflow_execution": _signal_of,
    "complete_workflow_execution": lambda _, told: {"result": _values(told.result.payloads)},
    "fail_workflow_execution": lambda _, told: {"why": told.failure.message},
    "cancel_workflow_execution": lambda _, __: {},
    "continue_as_new_workflow_execution": lambda _, told: {
        "argument": _values(told.input.payloads)
    },
}
