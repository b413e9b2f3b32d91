"""The histories that a played life writes are Temporal's own: the SDK's `Replayer` takes them."""

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from tests.simulation.batch import plan_of
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.histories import history_of, write_histories
from tests.simulation.engine.probes import PROBES, Asked, Said
from tests.simulation.engine.probes.workflows import ASignalEndsAWait
from tests.simulation.engine.story import Story, begun
from tests.simulation.engine.test_server_rules import played
from tests.simulation.life import Life
from tests.simulation.plan import Act, At, Plan
from tests.simulation.simulation import play
from tests.simulation.timeline import timeline
from workers.registry import WORKFLOWS

KILLED = replace(
    plan_of(23, jobs=5),
    acts=(
        Act(At(60), "process", "kill", "main"),
        Act(At(200), "process", "kill", "main"),
        Act(At(300), "engine", "away", seconds=40),
        Act(At(500), "engine", "restore", seconds=120),
        Act(At(900), "engine", "forget"),
        Act(At(1000), "process", "restart", "main", 5),
    ),
)
PLANS = {"of people and the world": plan_of(9, jobs=6), "of kills and losses": KILLED}


async def failed_replays(
    histories: Iterable[WorkflowHistory], workflows: Sequence[type] = WORKFLOWS
) -> list[str]:
    """Replay with the SDK; return what has failed."""

    async def each() -> AsyncIterator[WorkflowHistory]:
        for history in histories:
            yield history

    replayer = Replayer(
        workflows=workflows,
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=pydantic_data_converter,
        debug_mode=True,  # Else a busy machine is a deadlock after 2 s.
    )
    found = await replayer.replay_workflows(each(), raise_on_replay_failure=False)
    return [str(failure) for failure in found.replay_failures.values()]


def _read(directory: Path) -> list[WorkflowHistory]:
    return [
        WorkflowHistory.from_json(path.stem, path.read_text())
        for path in sorted(directory.glob("*.json"))
    ]


def _kept(engine: Engine) -> list[WorkflowHistory]:
    """The histories of all runs, through JSON."""
    whole = [history_of(run, engine.limits.suggested_events) for run in engine.server.kept]
    return [WorkflowHistory.from_json(one.workflow_id, one.to_json()) for one in whole]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
async def test_each_history_of_a_life_with_faults_replays(plan: Plan, tmp_path: Path) -> None:
    life = play(plan, is_recorded=True)
    assert life.struck, "nothing has gone wrong in this life"
    assert write_histories(life.engine, tmp_path) == len(life.engine.server.kept)
    histories = _read(tmp_path)
    assert len(histories) == len(life.engine.server.kept) > len(plan.jobs)
    assert sum(len(one.events) for one in histories) == _events(life)
    assert await failed_replays(histories) == []


def _events(life: Life) -> int:
    return sum(len(run.events) for run in life.engine.server.kept)


def test_a_recorded_life_is_the_same_life() -> None:
    plain, recorded = (play(KILLED, is_recorded=one) for one in (False, True))
    assert list(timeline(recorded, most=10**9)) == list(timeline(plain, most=10**9))
    assert plain.engine.server.kept == []


def test_a_life_that_was_lost_and_found_has_both_its_courses(tmp_path: Path) -> None:
    engine, _ = begun(encoded=True, keeps_histories=True)
    engine.play(5)
    earlier = engine.snapshot()
    engine.play(30)
    engine.restore(earlier)
    engine.play()
    assert write_histories(engine, tmp_path) == 2
    lost, found = sorted(_read(tmp_path), key=lambda one: len(one.events))
    assert lost.run_id == found.run_id
    assert len(found.events) == len(engine.history("s"))


async def test_every_probe_has_a_history_that_replays() -> None:
    """Failures, cancellations, patches, continuing as new: each rule of the engine."""
    histories, kinds = [], Counter[int]()
    for probe in PROBES:
        engine = Engine(1, workflows=[probe.workflow], encoded=True, keeps_histories=True)
        played(probe, engine)
        histories += _kept(engine)
    for history in histories:
        kinds.update(event.event_type for event in history.events)
    assert len(histories) > len(PROBES)
    assert len(kinds) > 24, "the probes show most kinds of events"
    assert await failed_replays(histories, [probe.workflow for probe in PROBES]) == []


async def test_a_timer_that_has_fired_before_a_signal_is_told_is_not_cancelled() -> None:
    """One activation tells both; the workflow hears the signal first, and waits no more."""
    engine = Engine(1, workflows=[ASignalEndsAWait], encoded=True, keeps_histories=True)
    engine.start("ASignalEndsAWait", "w", Asked())
    engine.later(5, partial(engine.processes.kill, "main", 100))
    engine.later(70, partial(engine.signal, "w", "tell", Said(text="late")))
    engine.play()
    assert engine.history("w")[4:] == [
        "TimerStarted",
        "TimerFired",
        "WorkflowTaskScheduled",
        "WorkflowExecutionSignaled",
        "WorkflowTaskStarted",
        "WorkflowTaskCompleted",
        "WorkflowExecutionCompleted",
    ]
    assert await failed_replays(_kept(engine), [ASignalEndsAWait]) == []


async def test_a_history_of_something_else_does_not_replay() -> None:
    engine, _ = begun(encoded=True, keeps_histories=True)
    engine.play()
    [history] = _kept(engine)
    for event in history.events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            event.activity_task_scheduled_event_attributes.activity_type.name = "other"
    [failure] = await failed_replays([history], [Story])
    assert "other" in failure


def test_histories_that_were_not_kept_cannot_be_written(tmp_path: Path) -> None:
    engine, _ = begun(keeps_histories=True)
    with pytest.raises(ValueError, match="encoded"):
        write_histories(engine, tmp_path)
