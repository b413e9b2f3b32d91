"""Rules of the engine that need no server to compare with: processes, replays, faults, losses."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from temporalio import workflow
from temporalio.common import RetryPolicy

from tests.simulation.contracts import (
    Attempt,
    CutOff,
    Event,
    NotFound,
    Sleep,
    Steps,
    Unavailable,
    Until,
)
from tests.simulation.engine.attempts import CallFault, FaultMode, NoFaults
from tests.simulation.engine.engine import Engine, Limits
from tests.simulation.engine.probes import Asked, Counts, Listener, Said, seconds
from workflows.contracts.base import Contract

RETRIES = RetryPolicy(initial_interval=seconds(1), maximum_interval=seconds(10))


@workflow.defn(sandboxed=False)
class Story(Listener):
    """An activity, a local activity, a timer and signals, as lifecycles have them."""

    @workflow.run
    async def run(self, asked: Asked) -> str:
        first = await workflow.execute_activity(
            "act",
            asked,
            result_type=Said,
            start_to_close_timeout=seconds(30),
            heartbeat_timeout=seconds(10),
            retry_policy=RETRIES,
        )
        second = await workflow.execute_local_activity(
            "note",
            first,
            result_type=Said,
            start_to_close_timeout=seconds(2),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )
        await workflow.sleep(10)
        if workflow.patched("later"):
            await self.listen(2)
        return f"{second.text} {workflow.uuid4()} {workflow.random().random()} {self.told()}"


@workflow.defn(sandboxed=False)
class Races(Listener):
    """Cancels an activity when it hears of it, without waiting for its end."""

    @workflow.run
    async def run(self, asked: Asked) -> str:
        handle = workflow.start_activity(
            "act",
            asked,
            result_type=Said,
            start_to_close_timeout=seconds(30),
            heartbeat_timeout=seconds(10),
        )
        await self.listen(1)
        await workflow.sleep(1.02)
        handle.cancel()
        outcomes = await asyncio.gather(handle, return_exceptions=True)
        await workflow.sleep(5)
        return type(outcomes[0]).__name__


@workflow.defn(sandboxed=False)
class Chatter:
    @workflow.run
    async def run(self, asked: Asked) -> str:
        rounds = 0
        while not workflow.info().is_continue_as_new_suggested():
            await workflow.sleep(1)
            rounds += 1
        if asked.fails:
            workflow.continue_as_new(Asked(fails=asked.fails - 1))
        return str(rounds)


@workflow.defn(name="Story", sandboxed=False)
class OtherStory(Listener):
    """The story in a release that has forgotten how it went."""

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await workflow.sleep(1)
        return "other"


class World:
    """What the effects of these tests have done."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.done: Counter[str] = Counter()
        self.cut_off = 0
        self.event = Event()
        engine.serve({"act": self.act, "note": self.note}, {"act": Asked, "note": Said})

    def act(self, attempt: Attempt, asked: Asked) -> Contract | Steps:
        self.done["act"] += 1
        return self._steps(asked) if asked.seconds else Said(text=f"try {attempt.number}")

    def note(self, _attempt: Attempt, said: Said) -> Contract:
        self.done["note"] += 1
        return said

    def _steps(self, asked: Asked) -> Steps:
        try:
            was_set = yield Until(self.event, asked.seconds)
        except CutOff:
            self.cut_off += 1
            raise
        self.done["finished"] += 1
        yield Sleep(1)
        return Said(text="set" if was_set else "not set")


class OneFault(NoFaults):
    """One fault, at the first call of one effect."""

    def __init__(self, effect: str, mode: FaultMode, seconds: float = 0) -> None:
        self._effect, self._fault = effect, CallFault(mode, seconds)
        self.met = 0

    def of_call(self, attempt: Attempt) -> CallFault | None:
        if attempt.effect != self._effect or self.met:
            return None
        self.met += 1
        return self._fault


def begun(*, asked: Asked | None = None, **options: Any) -> tuple[Engine, World]:
    """An engine with one `Story`, which hears its two signals after a minute."""
    engine = Engine(7, workflows=[Story, Races, Counts, Chatter], **options)
    world = World(engine)
    engine.start("Story", "s", asked or Asked())
    for at, text in ((3, "x"), (60, "y")):
        engine.later(at, partial(_tell, engine, text))
    return engine, world


def _tell(engine: Engine, text: str) -> None:
    """Signal the story, if it is still there."""
    with contextlib.suppress(NotFound):
        engine.signal("s", "tell", Said(text=text))


def undisturbed() -> tuple[str, list[str]]:
    engine, _ = begun()
    engine.play()
    return engine.result("s"), engine.history("s")


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


@pytest.mark.parametrize("at", [5.0, 30.0])
@pytest.mark.parametrize("how", ["kill", "upgrade"])
def test_a_workflow_goes_on_in_another_process_by_a_replay(at: float, how: str) -> None:
    engine, world = begun()
    if how == "kill":
        engine.later(at, lambda: engine.processes.kill("main", again_after_s=1))
    else:
        engine.later(at, engine.processes.upgrade)
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
    engine.later(24, engine.processes.upgrade)
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
    assert set(outcomes) == {"ActivityError", "Said"}


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
    engine.processes.two_main()
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


def test_a_history_of_a_restored_server_that_its_process_has_left_behind_fails_its_task() -> None:
    engine, _ = begun()
    engine.play(1)
    earlier = engine.snapshot()
    engine.play(30)
    engine.restore(earlier)
    engine.play(most_s=600)
    assert "WorkflowTaskFailed" in engine.history("s")


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
    seen_late, gone_late = [], []
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


def test_each_step_is_followed_by_the_hooks() -> None:
    engine, _ = begun()
    steps: list[int] = []
    engine.after_step.append(lambda: steps.append(engine.clock.now))
    engine.play(5)
    assert steps == sorted(steps)
    assert len(steps) > 3


def test_what_is_cancelled_is_not_done() -> None:
    engine, done = Engine(1, workflows=[]), []
    keep: Callable[[], None] = lambda: done.append("kept")  # noqa: E731 - one of a pair
    engine.later(1, keep)
    engine.later(1, lambda: done.append("cancelled")).cancel()
    assert engine.play() == "nothing"
    assert done == ["kept"]
    assert engine.now().timestamp() % 60 == 1
