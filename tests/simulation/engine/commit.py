"""What the server does with the commands of a completed workflow task."""

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.contracts import NotFound
from tests.simulation.engine import failures
from tests.simulation.engine.clock import micros
from tests.simulation.engine.commands import TIMER, Commands
from tests.simulation.engine.execution import Happening, Job, Run, Timer

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine

SIGNAL_LATENCY = 3_000
"""The longest ordinary time until a signal to another workflow has arrived, in microseconds."""


def commit(engine: "Engine", run: Run, commands: Commands) -> None:
    for kind, what in commands.sent.values():
        run.keep(what)
        _EFFECTS[kind](engine, run, what)


def arm_timer(engine: "Engine", run: Run, seq: int, fires_at: int) -> None:
    fire = partial(_fire, engine, run, seq)
    due = engine.clock.after(fires_at - engine.clock.now, fire, run.is_endless)
    run.timers[seq] = Timer(fires_at, due)


def _fire(engine: "Engine", run: Run, seq: int) -> None:
    idles = engine.idle_loops.get(run.workflow_id)
    if idles is not None and seq in run.timers and idles[0]():
        arm_timer(engine, run, seq, engine.clock.now + micros(idles[1]))
    elif run.timers.pop(seq, None) is not None:
        job = Job()
        job.fire_timer.seq = seq
        engine.tasks.happen(run, Happening(("TimerFired",), job, (TIMER, seq)))


def _start_timer(engine: "Engine", run: Run, what: Any) -> None:
    run.events.append("TimerStarted")
    limit = what.start_to_fire_timeout.ToMicroseconds()
    arm_timer(engine, run, what.seq, engine.clock.now + limit)


def _cancel_timer(_engine: "Engine", run: Run, what: Any) -> None:
    """A timer that has fired meanwhile, unknown to the workflow, has not fired."""
    timer = run.timers.pop(what.seq, None)
    if timer is not None:
        timer.due.cancel()
    else:
        run.take_back((TIMER, what.seq))
    run.events.append("TimerCanceled")


def _schedule_activity(engine: "Engine", run: Run, what: Any) -> None:
    run.events.append("ActivityTaskScheduled")
    engine.activities.schedule(run, what)


def _cancel_activity(engine: "Engine", run: Run, what: Any) -> None:
    run.events.append("ActivityTaskCancelRequested")
    engine.activities.request_cancel(run, what.seq)


def _local_marker(_engine: "Engine", run: Run, _what: Any) -> None:
    run.events.append("MarkerRecorded")


def _patch(_engine: "Engine", run: Run, _what: Any) -> None:
    """Core also writes the patch to the search attribute `TemporalChangeVersion`."""
    run.events += ("MarkerRecorded", "UpsertWorkflowSearchAttributes")


def _search_attributes(engine: "Engine", run: Run, what: Any) -> None:
    run.events.append("UpsertWorkflowSearchAttributes")
    for name, payload in what.search_attributes.indexed_fields.items():
        value = json.loads(payload.data) if payload.data else None
        if value is None:
            run.attributes.pop(name, None)
        else:
            run.attributes[name] = value
            if name == "ResourceStatus":
                engine.on_status(run, value)


def _signal_external(engine: "Engine", run: Run, what: Any) -> None:
    run.events.append("SignalExternalWorkflowExecutionInitiated")
    send_signal(engine, run, what)


def send_signal(engine: "Engine", run: Run, what: Any) -> None:
    """Deliver a signal to another workflow soon."""
    run.signals[what.seq] = what
    delay = int(SIGNAL_LATENCY * engine.random.random())
    engine.clock.after(delay, partial(_deliver, engine, run, what), run.is_endless)


def _deliver(engine: "Engine", run: Run, what: Any) -> None:
    if not run.is_running:
        return
    del run.signals[what.seq]
    job = Job()
    job.resolve_signal_external_workflow.seq = what.seq
    event = "ExternalWorkflowExecutionSignaled"
    target = what.workflow_execution.workflow_id
    try:
        # The server lets no workflow signal itself.
        target = "" if target == run.workflow_id else target
        engine.server.deliver(target, what.signal_name, list(what.args))
    except NotFound:
        event = "SignalExternalWorkflowExecutionFailed"
        job.resolve_signal_external_workflow.failure.CopyFrom(failures.of_lost_signal())
    engine.tasks.happen(run, Happening((event,), job))


def _complete(engine: "Engine", run: Run, what: Any) -> None:
    run.result = what.result
    engine.server.end(run, "completed", "WorkflowExecutionCompleted")


def _fail(engine: "Engine", run: Run, what: Any) -> None:
    run.failure = what.failure
    engine.log.add(engine.clock.now, run.workflow_id, "failed", what.failure.message)
    engine.server.end(run, "failed", "WorkflowExecutionFailed")


def _cancel(engine: "Engine", run: Run, _what: Any) -> None:
    engine.server.end(run, "canceled", "WorkflowExecutionCanceled")


def _continue_as_new(engine: "Engine", run: Run, what: Any) -> None:
    engine.server.end(run, "continued_as_new", "WorkflowExecutionContinuedAsNew")
    engine.server.continue_as_new(run, what)


_EFFECTS: dict[str, Callable[["Engine", Run, Any], None]] = {
    "start_timer": _start_timer,
    "cancel_timer": _cancel_timer,
    "schedule_activity": _schedule_activity,
    "request_cancel_activity": _cancel_activity,
    "local_marker": _local_marker,
    "set_patch_marker": _patch,
    "upsert_workflow_search_attributes": _search_attributes,
    "signal_external_workflow_execution": _signal_external,
    "complete_workflow_execution": _complete,
    "fail_workflow_execution": _fail,
    "cancel_workflow_execution": _cancel,
    "continue_as_new_workflow_execution": _continue_as_new,
}
