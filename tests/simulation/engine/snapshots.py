"""The server's files of an earlier moment, and their return."""

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.simulation.engine.commit import arm_timer, send_signal
from tests.simulation.engine.execution import KeptEvents, Run
from tests.simulation.engine.schedules import Schedule

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine


@dataclass(frozen=True)
class Snapshot:
    """The runs and schedules of one moment; `at` in microseconds of virtual time."""

    at: int
    latest: dict[str, Run]
    schedules: tuple[Schedule, ...]


def snapshot(engine: "Engine") -> Snapshot:
    latest = {name: _copied(run) for name, run in engine.server.latest.items()}
    schedules = tuple(copy(schedule) for schedule in engine.schedules.all())
    return Snapshot(engine.clock.now, latest, schedules)


def restore(engine: "Engine", earlier: Snapshot) -> None:
    """Bring back what there was: time limits and timers that have passed meanwhile pass now."""
    engine.note("server", "has its earlier files back")
    for run in list(engine.server.running.values()):
        engine.drop(run)
    engine.server.latest.clear()
    for workflow_id, kept in earlier.latest.items():
        run = _copied(kept)
        engine.server.latest[workflow_id] = run
        if run.is_running:
            engine.server.running[workflow_id] = run
            engine.server.keep(run)
            _resume(engine, run)
    engine.schedules.replace([copy(schedule) for schedule in earlier.schedules])


def _copied(run: Run) -> Run:
    """A run with lists of its own; what they hold is never changed, but for its activities."""
    other = copy(run)
    for name in ("events", "news", "buffered", "done", "flags", "timers", "signals", "attributes"):
        setattr(other, name, copy(getattr(run, name)))
    other.kept = other.events if isinstance(other.events, KeptEvents) else None
    other.request_ids = set(run.request_ids)
    other.task = replace(run.task, jobs=list(run.task.jobs)) if run.task else None
    other.activities = {}
    for seq, activity in run.activities.items():
        kept = other.activities[seq] = copy(activity)
        kept.run, kept.due, kept.silence, kept.call = other, None, None, None
    return other


def _resume(engine: "Engine", run: Run) -> None:
    timers, run.timers = run.timers, {}
    for seq, timer in timers.items():
        arm_timer(engine, run, seq, timer.fires_at)
    for signal in run.signals.values():
        send_signal(engine, run, signal)
    activities, run.activities = run.activities, {}
    for activity in activities.values():
        engine.activities.resume(activity)
    if run.task is None:
        return
    if run.task.is_started:
        engine.tasks.again(run, run.task, "WorkflowTaskTimedOut")
    else:
        engine.tasks.reoffer(run)
