"""What becomes of one call of an effect when something goes wrong with it."""

from collections import Counter

import pytest

from tests.simulation.engine.attempts import FaultMode
from tests.simulation.engine.probes import Asked, Said
from tests.simulation.engine.story import OneFault, begun, undisturbed


@pytest.mark.parametrize(
    ("mode", "times", "number"),
    [
        ("refused", 1, 2),
        ("lost", 2, 2),
        ("failed_after", 2, 2),
        ("killed_before", 1, 2),
        ("killed_after", 2, 2),
        ("slow", 1, 1),
        ("canceled", 1, 1),
    ],
)
def test_an_activity_survives_each_fault(mode: FaultMode, times: int, number: int) -> None:
    faults = OneFault("act", mode, seconds=20)
    engine, world = begun(faults=faults)
    engine.play()
    assert faults.met == 1
    assert world.done["act"] == times
    if mode == "canceled":
        assert engine.describe("s").status == "canceled"
    else:
        assert engine.result("s").startswith(f"try {number} ")


def test_a_late_attempt_acts_after_the_next_one() -> None:
    engine, world = begun(faults=OneFault("act", "late", seconds=45))
    engine.play(44)
    assert world.done["act"] == 1
    engine.play()
    assert world.done["act"] == 2
    assert engine.result("s").startswith("try 2 ")


@pytest.mark.parametrize("mode", ["lost", "killed_after", "failed_after", "killed_before"])
def test_a_local_activity_is_repeated_after_each_fault(mode: FaultMode) -> None:
    engine, world = begun(faults=OneFault("note", mode))
    engine.play()
    assert world.done["note"] == (1 if mode == "killed_before" else 2)
    assert engine.result("s") == undisturbed()[0]


def test_a_process_that_dies_with_a_task_is_noticed_by_its_time_limit() -> None:
    engine, _ = begun(faults=OneFault("note", "killed_before"))
    engine.play()
    assert "WorkflowTaskTimedOut" in engine.history("s")


def test_a_slow_effect_goes_on_when_its_event_is_set() -> None:
    engine, world = begun(asked=Asked(seconds=25))
    engine.later(2, world.event.set)
    engine.play()
    assert engine.result("s").startswith("set ")


def test_a_slow_effect_goes_on_when_its_limit_has_passed() -> None:
    engine, _ = begun(asked=Asked(seconds=25))
    engine.play()
    assert engine.result("s").startswith("not set ")


def test_a_slow_effect_does_nothing_more_when_its_process_has_died() -> None:
    engine, world = begun(asked=Asked(seconds=25))
    engine.later(5, lambda: engine.processes.kill("main", again_after_s=1))
    engine.later(24, engine.processes.restart)
    engine.play()
    assert world.done["act"] == 3
    assert world.done["finished"] == 1


def test_attempts_of_a_closed_workflow_are_cut_off() -> None:
    engine, world = begun(asked=Asked(seconds=25))
    engine.later(5, lambda: engine.terminate("s"))
    engine.play(20)
    assert world.cut_off == 1


def test_nobody_is_told_of_an_outcome_that_arrives_while_its_activity_is_cancelled() -> None:
    """The outcome arrives within the very task that cancels the activity."""
    outcomes = Counter[str]()
    for offset in range(40):
        engine, world = begun()
        engine.start("Races", "r", Asked(seconds=28))
        engine.signal("r", "tell", Said())
        engine.later(offset / 1000, world.event.set)
        engine.play()
        assert engine.describe("r").status == "completed"
        outcomes[engine.result("r")] += 1
    assert set(outcomes) == {"ActivityError", "CancelledError", "Said"}
