"""What is left when a worker process ends, or the server loses something."""

import pytest

from tests.simulation.contracts import NotFound, Unavailable
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.probes import Asked, Counts, Said
from tests.simulation.engine.probes.workflows import SignalsAnother
from tests.simulation.engine.story import OtherStory, Story, begun, undisturbed


@pytest.mark.parametrize("at", [5.0, 30.0])
@pytest.mark.parametrize("how", ["kill", "restart"])
def test_a_workflow_goes_on_in_another_process_by_a_replay(at: float, how: str) -> None:
    engine, world = begun()
    if how == "kill":
        engine.later(at, lambda: engine.processes.kill("main", again_after_s=1))
    else:
        engine.later(at, engine.processes.restart)
    engine.play()
    assert engine.result("s") == undisturbed()[0]
    assert world.done == {"act": 1, "note": 1}


def test_after_a_kill_the_first_task_waits_for_the_cache_of_the_dead_process() -> None:
    engine, _ = begun()
    engine.later(59, lambda: engine.processes.kill("main", again_after_s=0.1))
    engine.play()
    assert engine.history("s") != undisturbed()[1]
    assert engine.history("s").count("WorkflowTaskTimedOut") == 1
    assert 63 <= engine.clock.now / 1e6 < 64


def test_a_query_is_answered_from_the_cache_and_by_a_replay() -> None:
    engine, _ = begun()
    engine.play(30)
    assert engine.query("s", "told") == "x"
    engine.processes.kill("main")
    assert engine.query("s", "told") == "x"
    with pytest.raises(RuntimeError, match="not found"):
        engine.query("s", "unknown")


def test_a_workflow_whose_code_has_changed_is_stuck_until_it_is_terminated() -> None:
    engine, _ = begun()
    engine.play(30)

    engine.workflows["Story"] = OtherStory
    engine.processes.kill("main", again_after_s=1)
    engine.play(61 + 3 + 29)
    assert engine.describe("s").task_attempt >= 4
    engine.terminate("s", identity="person")
    assert engine.describe("s").terminated_by == "person"
    assert engine.play() == "nothing"


def test_two_releases_serve_side_by_side_until_the_first_process_follows() -> None:
    engine, _ = begun()
    engine.play(5)
    engine.processes.roll([OtherStory], beside_s=20)
    served = {name: engine.processes[name].workflows["Story"] for name in ("main", "main-2")}
    assert served == {"main": Story, "main-2": OtherStory}
    engine.play(29)
    assert engine.processes["main"].workflows["Story"] is OtherStory


def test_a_roll_that_was_taken_back_does_not_go_on() -> None:
    engine, _ = begun()
    engine.processes.roll([OtherStory], beside_s=20)
    engine.later(10, lambda: engine.processes.upgrade([Story]))
    engine.play(30)
    assert {engine.processes[name].workflows["Story"] for name in ("main", "main-2")} == {Story}
    assert engine.processes["main"].life == 2, "it was stopped once, by the upgrade back"


def test_a_process_that_dies_during_an_upgrade_comes_back_with_the_new_code() -> None:
    engine, _ = begun()
    engine.processes.kill("main", again_after_s=1)
    engine.processes.upgrade([OtherStory], away_s=60)
    engine.play(10)
    assert engine.processes["main"].workflows["Story"] is OtherStory


def test_an_unserved_queue_waits_for_its_process() -> None:
    engine, world = begun()
    engine.processes.kill("main")
    engine.play(100)
    assert world.done["act"] == 0
    engine.processes.start("main")
    engine.play()
    assert world.done["act"] == 1


def test_two_main_processes_share_their_queues() -> None:
    engine, _ = begun()
    engine.processes.second("main")
    for number in range(20):
        engine.start("Story", f"s{number}", Asked())
    engine.play(30)
    caches = [len(engine.processes[name].cache) for name in ("main", "main-2")]
    assert sum(caches) == 21
    assert min(caches) > 0
    engine.processes.kill("main-2")
    engine.play()
    assert engine.describe("s").status == "completed"


def test_a_server_that_is_away_answers_nobody_and_loses_nothing() -> None:
    engine, world = begun(keeps_histories=True)
    engine.go_away(20)
    with pytest.raises(Unavailable):
        engine.describe("s")
    with pytest.raises(Unavailable):
        engine.play()  # the signal at 3 s
    engine.play()
    assert world.done["act"] == 1
    assert engine.query("s", "told") == "y"


def test_a_server_that_has_forgotten_knows_no_workflow_and_starts_it_anew() -> None:
    engine, world = begun(keeps_histories=True)
    engine.play(30)
    engine.forget()
    assert engine.running() == []
    with pytest.raises(NotFound):
        engine.describe("s")
    engine.start("Story", "s", Asked())
    engine.signal("s", "tell", Said(text="z"))
    engine.play()
    assert engine.query("s", "told") == "z,y"
    assert world.done["act"] == 2


def test_after_a_restore_a_workflow_goes_on_from_the_earlier_moment() -> None:
    engine, world = begun()
    engine.play(0.002)
    earlier = engine.snapshot()
    engine.play(30)
    engine.restore(earlier)
    engine.signal("s", "tell", Said(text="again"))
    engine.play()
    assert engine.describe("s").status == "completed"
    assert engine.result("s").endswith("again,y")
    assert world.done["act"] == 2


def test_a_signal_that_a_restored_workflow_has_sent_arrives_again() -> None:
    engine = Engine(1, workflows=[SignalsAnother, Counts])
    engine.start("Counts", "other", Asked())
    engine.start("SignalsAnother", "s", Asked())
    engine.play(lambda: bool(engine.server.latest["s"].signals))
    earlier = engine.snapshot()
    engine.play(5)
    assert engine.describe("s").status == "completed"
    engine.restore(earlier)
    engine.play(10)
    assert engine.describe("s").status == "completed"
    assert engine.history("other").count("WorkflowExecutionSignaled") == 1


def test_a_snapshot_can_come_back_twice() -> None:
    engine, _ = begun()
    engine.play(30)
    earlier = engine.snapshot()
    for _ in range(2):
        engine.restore(earlier)
        engine.signal("s", "tell", Said(text="z"))
        engine.play(engine.clock.now / 1e6 + 20)
        assert engine.describe("s").status == "completed"
        assert engine.result("s").endswith("x,z")


def test_a_process_does_not_go_on_with_what_it_has_seen_in_another_course() -> None:
    """Two courses of a run may have equally many tasks, after two restores."""
    engine, _ = begun()
    engine.play(4)
    common = engine.snapshot()
    engine.signal("s", "tell", Said(text="this"))
    engine.play(5)
    this = engine.snapshot()
    engine.restore(common)
    engine.signal("s", "tell", Said(text="other"))
    engine.play(6)
    assert engine.query("s", "told") == "x,other"
    assert len(engine.server.latest["s"].done) == len(this.latest["s"].done)
    engine.restore(this)
    engine.signal("s", "tell", Said(text="last"))
    engine.play()
    assert engine.result("s").endswith("x,this,last")


def test_a_history_of_a_restored_server_that_its_process_has_left_behind_fails_its_task() -> None:
    engine, _ = begun()
    engine.play(1)
    earlier = engine.snapshot()
    engine.play(30)
    engine.restore(earlier)
    engine.play(most_s=600)
    assert "WorkflowTaskFailed" in engine.history("s")
