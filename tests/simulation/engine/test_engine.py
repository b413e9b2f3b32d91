"""The engine itself: one life twice, its clock, its schedules, its requests."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.contracts import Unavailable
from tests.simulation.engine.attempts import NoFaults
from tests.simulation.engine.engine import Engine, Limits
from tests.simulation.engine.probes import Asked, Counts, Said
from tests.simulation.engine.probes.workflows import ASignalEndsAWait
from tests.simulation.engine.story import Chatter, Story, begun


def test_a_seed_gives_the_same_life_twice() -> None:
    one, other = begun()[0], begun()[0]
    one.play()
    other.play()
    assert one.log.lines == other.log.lines
    assert one.result("s") == other.result("s")
    assert list(one.log.rendered("s"))


def test_encoded_values_lead_to_the_same_life() -> None:
    plain, encoded = begun()[0], begun(encoded=True)[0]
    plain.play()
    encoded.play()
    assert encoded.result("s") == plain.result("s")
    assert encoded.history("s") == plain.history("s")


def test_the_server_suggests_a_new_run_and_ends_a_history_that_is_too_long() -> None:
    engine = Engine(1, workflows=[Chatter], limits=Limits(suggested_events=50))
    engine.start("Chatter", "c", Asked(fails=3))
    engine.play()
    assert engine.describe("c").status == "completed"
    assert len(engine.history("c")) > 50

    engine = Engine(1, workflows=[Chatter], limits=Limits(suggested_events=90, most_events=60))
    engine.start("Chatter", "c", Asked())
    engine.play()
    assert engine.describe("c").terminated_by == "history-service"


def test_a_schedule_starts_one_workflow_at_a_time() -> None:
    engine = Engine(1, workflows=[Counts])
    engine.schedules.create("prices", "Counts", Asked(), 60, trigger_immediately=True)
    assert not engine.schedules.create("prices", "Counts", Asked(), 60)
    engine.play(150)
    [first] = engine.running()
    assert first.workflow_id == "prices-2026-01-01T00:00:00Z"
    assert first.search_attributes["TemporalScheduledById"] == "prices"
    engine.signal(first.workflow_id, "tell", Said(text="end"))
    engine.play(200)
    assert [one.workflow_id for one in engine.running()] == ["prices-2026-01-01T00:03:00Z"]
    engine.schedules.delete("prices")
    engine.terminate("prices-2026-01-01T00:03:00Z")
    assert engine.play() == "nothing"


def test_a_quiet_life_ends_although_endless_workflows_wait() -> None:
    engine = Engine(1, workflows=[Chatter, Counts], endless=["Chatter"])
    engine.schedules.create("s", "Counts", Asked(), 60)
    engine.start("Chatter", "c", Asked())
    engine.later(5, lambda: None)
    assert engine.play(stops_when_quiet=True) == "quiet"
    assert engine.clock.now / 1e6 == 5


def test_visibility_is_late() -> None:
    engine = Engine(3, workflows=[Counts])
    for number in range(30):
        engine.start("Counts", f"c{number}", Asked())
    seen_late = [one.workflow_id for one in engine.running()]
    engine.play(5)
    assert len(seen_late) < len(engine.running()) == 30
    for number in range(30):
        engine.terminate(f"c{number}")
    gone_late = engine.running()
    engine.play(engine.clock.now / 1e6 + 5)
    assert gone_late
    assert engine.running() == []


@pytest.mark.parametrize("fault", ["refused", "lost"])
def test_a_request_without_an_answer_was_done_or_not(fault: str) -> None:
    class Unanswered(NoFaults):
        def of_request(self, kind: str, workflow_id: str) -> Any:
            return fault if kind == "signal" else None

    engine = Engine(1, workflows=[Counts], faults=Unanswered())
    engine.start("Counts", "c", Asked())
    with pytest.raises(Unavailable):
        engine.signal("c", "tell", Said(text="end"))
    engine.play(10)
    assert engine.describe("c").status == ("completed" if fault == "lost" else "running")


def test_an_effect_that_nothing_serves_is_an_error_of_the_life() -> None:
    engine = Engine(1, workflows=[Story])
    engine.start("Story", "s", Asked())
    with pytest.raises(KeyError, match="act"):
        engine.play()


@pytest.mark.parametrize(("kind", "has_limit"), [(Counts, False), (ASignalEndsAWait, True)])
def test_a_wait_without_a_limit_is_seen(kind: type, has_limit: bool) -> None:
    engine = Engine(1, workflows=[kind])
    engine.start(kind.__name__, "w", Asked())
    assert engine.waits_without_limit() == [], "its first task is still to come"
    engine.play(5)
    waiting = [one.workflow_id for one in engine.waits_without_limit()]
    assert waiting == ([] if has_limit else ["w"])


def test_what_is_cancelled_is_not_done() -> None:
    engine, done = Engine(1, workflows=[]), []
    keep: Callable[[], None] = lambda: done.append("kept")  # noqa: E731 - one of a pair
    engine.later(1, keep)
    engine.later(1, lambda: done.append("cancelled")).cancel()
    assert engine.play() == "nothing"
    assert done == ["kept"]
    assert engine.now().timestamp() % 60 == 1
