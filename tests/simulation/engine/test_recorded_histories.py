"""What a real server has recorded and what the engine writes obey the same rules.

Each history is read in two ways: its events by the rules of `grammar.py`, and its workflow tasks by
the engine's own instance, whose commands have to be the events that followed (`recorded.py`).
"""

from collections.abc import Callable
from copy import deepcopy
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType, RetryState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from tests.replay.next_release import PATCHED, UNPATCHED
from tests.replay.test_replay import RECORDED
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.events import is_command, name_of, told_by
from tests.simulation.engine.grammar import broken_chains, broken_rules
from tests.simulation.engine.histories import history_of
from tests.simulation.engine.probes import PROBES
from tests.simulation.engine.processes import named
from tests.simulation.engine.recorded import differences
from tests.simulation.engine.test_histories import PLANS
from tests.simulation.engine.test_server_rules import played
from tests.simulation.plan import Plan
from tests.simulation.simulation import play
from workers.registry import WORKFLOWS

Events = list[HistoryEvent]
REPLAYED_OTHERWISE = "ALocalActivityRunsOutOfTime"
"""Its result is how the local activity has failed, of which Core tells less in a replay."""
SEED = 8
"""Another than in other tests of the probes: some fail once for each run of an id."""
BY_NAME = named(WORKFLOWS)
PATHS = {path.stem: path for path in RECORDED}


@cache
def _read(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text())


def _kept(engine: Engine) -> list[WorkflowHistory]:
    return [history_of(run, engine.limits.suggested_events) for run in engine.server.kept]


def _probed(name: str) -> WorkflowHistory:
    """The history that the engine writes of a probe's last run."""
    [probe] = (one for one in PROBES if one.name == name)
    engine = Engine(SEED, workflows=[probe.workflow], encoded=True, keeps_histories=True)
    played(probe, engine)
    return _kept(engine)[-1]


# ── both sides ──


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recorded_history_obeys_the_rules_of_the_engine(path: Path) -> None:
    assert broken_rules(_read(path)) == []


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_engine_commands_what_a_real_worker_has_commanded(path: Path) -> None:
    """With every argument, time limit, result and chance value that is in the history."""
    assert differences(_read(path), BY_NAME) == []


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_histories_of_a_played_life_obey_the_same_rules(plan: Plan) -> None:
    histories = _kept(play(plan, is_recorded=True).engine)
    assert len(histories) > 20
    assert [what for one in histories for what in broken_rules(one)] == []
    assert [what for one in histories for what in differences(one, named(PATCHED))] == []
    assert broken_chains(histories) == []


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_the_histories_of_a_probe_obey_the_same_rules(probe: Any) -> None:
    engine = Engine(SEED, workflows=[probe.workflow], encoded=True, keeps_histories=True)
    played(probe, engine)
    for history in _kept(engine):
        assert broken_rules(history) == []
        found = differences(history, engine.workflows)
        assert bool(found) is (probe.name == REPLAYED_OTHERWISE), found


def test_a_change_without_a_patch_mark_commands_something_else() -> None:
    [what] = differences(_read(PATHS["job_finished"]), named(UNPATCHED))
    assert "local_marker, and event 22 is UpsertWorkflowSearchAttributes" in what
    assert differences(_read(PATHS["job_finished"]), named(PATCHED)) == []


# ── a spoiled history is refused ──


def _first(events: Events, kind: str) -> Any:
    """The attributes of the first event of a type."""
    return told_by(_event(events, kind))


def _event(events: Events, kind: str) -> HistoryEvent:
    return next(event for event in events if name_of(event) == kind)


def _later(event: HistoryEvent, by: timedelta) -> None:
    event.event_time.FromDatetime(event.event_time.ToDatetime() + by)


def _swap(events: Events, first: int, second: int) -> None:
    """Let two events, by their numbers, change their places."""
    one, other = events[first - 1], events[second - 1]
    one.event_id, other.event_id = second, first
    events[first - 1], events[second - 1] = other, one


def _leave_out(events: Events) -> None:
    del events[5]


def _fire_early(events: Events) -> None:
    _later(_event(events, "TimerFired"), -timedelta(hours=2))


def _fire_unknown(events: Events) -> None:
    _first(events, "TimerFired").started_event_id = 1


def _end_unknown(events: Events) -> None:
    _first(events, "ActivityTaskCompleted").scheduled_event_id = 1


def _end_late(events: Events) -> None:
    _later(_event(events, "ActivityTaskCompleted"), timedelta(days=1))


def _end_another_attempt(events: Events) -> None:
    _first(events, "ActivityTaskCompleted").started_event_id = 1


def _retry_at_once(events: Events) -> None:
    _first(events, "ActivityTaskStarted").attempt = 5


def _retry_too_often(events: Events) -> None:
    _first(events, "ActivityTaskScheduled").retry_policy.maximum_attempts = 1
    _first(events, "ActivityTaskStarted").attempt = 2


def _end_for_another_reason(events: Events) -> None:
    _first(
        events, "ActivityTaskFailed"
    ).retry_state = RetryState.RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED


def _give_up_a_retry(events: Events) -> None:
    _first(events, "ActivityTaskScheduled").retry_policy.maximum_attempts = 0
    failed = _first(events, "ActivityTaskFailed")
    failed.failure.application_failure_info.non_retryable = False
    failed.failure.application_failure_info.type = "Another"


def _cancel_by_nobody(events: Events) -> None:
    _first(events, "ActivityTaskCancelRequested").scheduled_event_id = 1


def _cancel_twice(events: Events) -> None:
    """The command before or after the request becomes the same request."""
    asked = _event(events, "ActivityTaskCancelRequested")
    place = asked.event_id if is_command(events[asked.event_id]) else asked.event_id - 2
    assert is_command(events[place])
    events[place].CopyFrom(asked)
    events[place].event_id = place + 1


def _command_of_another_task(events: Events) -> None:
    _first(events, "TimerStarted").workflow_task_completed_event_id = 3


def _hear_within_a_task(events: Events) -> None:
    heard = _event(events, "WorkflowExecutionSignaled").event_id
    _swap(events, heard, heard + 3)


def _go_on_after_the_end(events: Events) -> None:
    _swap(events, len(events) - 1, len(events))


def _tell_nothing(events: Events) -> None:
    heard = _event(events, "WorkflowExecutionSignaled").event_id
    events[heard - 1].CopyFrom(_event(events, "MarkerRecorded"))
    events[heard - 1].event_id = heard


def _tell_nobody(events: Events) -> None:
    del events[_event(events, "WorkflowExecutionSignaled").event_id :]


def _mark_twice(events: Events) -> None:
    markers = [event for event in events if name_of(event) == "MarkerRecorded"]
    markers[1].marker_recorded_event_attributes.CopyFrom(
        markers[0].marker_recorded_event_attributes
    )


def _outcomes_first(events: Events) -> None:
    """A signal was buffered with an activity's outcome, and stands before it."""
    for signal in (event for event in events if name_of(event) == "WorkflowExecutionSignaled"):
        number = signal.event_id
        if name_of(events[number + 1]) == "ActivityTaskCompleted":
            _swap(events, number, number + 2)
            return


def _do_not_list(events: Events) -> None:
    upsert = _first(events, "UpsertWorkflowSearchAttributes")
    upsert.search_attributes.indexed_fields.clear()


def _turn_back(events: Events) -> None:
    _later(_event(events, "WorkflowTaskCompleted"), -timedelta(seconds=60))


def _two_tasks(events: Events) -> None:
    heard = _event(events, "WorkflowExecutionSignaled").event_id
    events[heard - 1].CopyFrom(events[1])
    events[heard - 1].event_id = heard


def _tell_earlier(events: Events) -> None:
    """The second of two local activities of one task says that it was told before the first."""
    second = [event for event in events if name_of(event) == "MarkerRecorded"][1]
    data = second.marker_recorded_event_attributes.details["data"].payloads[0]
    data.data = data.data.replace(b'"activation_index":2', b'"activation_index":0')


def _signal_nobody(events: Events) -> None:
    _first(events, "SignalExternalWorkflowExecutionFailed").initiated_event_id = 1


def _cancel_unasked(events: Events) -> None:
    """What cancels the run becomes a signal."""
    asked = _event(events, "WorkflowExecutionCancelRequested")
    asked.event_type = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    asked.workflow_execution_signaled_event_attributes.signal_name = "tell"


Spoil = Callable[[Events], None]
SPOILED: tuple[tuple[str, Spoil, str], ...] = (
    ("job_finished", _leave_out, "the number does not follow"),
    ("job_finished", _command_of_another_task, "a command does not follow its task"),
    ("job_finished", _hear_within_a_task, "nothing is written while a task is with a worker"),
    ("job_finished", _go_on_after_the_end, "it follows WorkflowExecutionCompleted"),
    ("job_finished", _tell_nothing, "nothing has happened that it could tell"),
    ("job_finished", _tell_nobody, "no task tells what has happened"),
    ("job_finished", _two_tasks, "a run has one task at a time"),
    ("job_finished", _mark_twice, "it has ended before"),
    ("job_finished", _turn_back, "time goes back"),
    ("leased_node_removed", _fire_early, "it fires too early"),
    ("leased_node_removed", _fire_unknown, "no such timer"),
    ("job_finished", _end_unknown, "no such activity"),
    ("job_finished", _end_late, "it ends after its time limit"),
    ("job_finished", _end_another_attempt, "it is of another attempt"),
    ("job_finished", _retry_at_once, "the pauses were too short"),
    ("job_finished", _retry_too_often, "there are 1 attempts"),
    ("lease_released", _end_for_another_reason, "RETRY_STATE_MAXIMUM_ATTEMPTS_REACHED"),
    ("lease_released", _give_up_a_retry, "its end is no RETRY_STATE_NON_RETRYABLE_FAILURE"),
    ("leased_node_removed", _cancel_twice, "it is cancelled once"),
    ("lease_released", _tell_earlier, "it was told before the last one"),
    ("cloud_provider_removed", _outcomes_first, "outcomes of activities come last"),
    ("WaitForACancellation", _cancel_by_nobody, "nobody has cancelled it"),
    ("AWorkflowIsCancelled", _cancel_unasked, "nobody has cancelled it"),
    ("ASignalFindsNoWorkflow", _signal_nobody, "no such signal"),
    ("APatchIsMarked", _do_not_list, "the patch is not listed"),
)


def _all_of(history: WorkflowHistory) -> Events:
    return [deepcopy(event) for event in history.events]


@pytest.mark.parametrize(
    ("name", "spoil", "rule"), SPOILED, ids=[spoil.__name__[1:] for _, spoil, _ in SPOILED]
)
def test_a_history_that_breaks_a_rule_is_refused(name: str, spoil: Spoil, rule: str) -> None:
    events = _all_of(_read(PATHS[name]) if name in PATHS else _probed(name))
    assert broken_rules(WorkflowHistory(name, events)) == []
    spoil(events)
    assert any(rule in what for what in broken_rules(WorkflowHistory(name, events)))


def test_a_run_that_does_not_say_which_one_it_continues_is_found() -> None:
    [probe] = (one for one in PROBES if one.name == "ANewRunHearsLaterSignals")
    engine = Engine(SEED, workflows=[probe.workflow], encoded=True, keeps_histories=True)
    played(probe, engine)
    first, second = _kept(engine)
    assert broken_chains([first, second]) == []
    second.events[0].workflow_execution_started_event_attributes.continued_execution_run_id = ""
    assert broken_chains([first, second]) == [f"{probe.name}: {second.run_id} does not follow"]


def _ask_something_else(events: Events) -> None:
    [payload] = _first(events, "ActivityTaskScheduled").input.payloads
    payload.data = payload.data.replace(b'"attempt":1', b'"attempt":2')


def _limit_more(events: Events) -> None:
    _first(events, "ActivityTaskScheduled").start_to_close_timeout.seconds += 1


def _retry_more(events: Events) -> None:
    _first(events, "ActivityTaskScheduled").retry_policy.maximum_attempts = 77


def _wait_longer(events: Events) -> None:
    _first(events, "TimerStarted").start_to_fire_timeout.seconds += 1


def _hear_something_else(events: Events) -> None:
    _first(events, "WorkflowExecutionSignaled").signal_name = "worker_idle"


def _show_something_else(events: Events) -> None:
    upsert = _first(events, "UpsertWorkflowSearchAttributes")
    upsert.search_attributes.indexed_fields["ResourceStatus"].data = b'"lost"'


def _answer_otherwise(events: Events) -> None:
    """A local activity says that the placement was not confirmed."""
    marker = [event for event in events if name_of(event) == "MarkerRecorded"][1]
    [payload] = marker.marker_recorded_event_attributes.details["result"].payloads
    payload.data = payload.data.replace(b'"confirmed":true', b'"confirmed":false')


def _command_in_another_order(events: Events) -> None:
    timer = _event(events, "TimerStarted").event_id
    _swap(events, timer - 1, timer)


def _return_something_else(events: Events) -> None:
    [payload] = told_by(events[-1]).result.payloads
    payload.data = payload.data.replace(b'"finished"', b'"failed"')


COMMANDED: tuple[tuple[Spoil, str], ...] = (
    (_ask_something_else, "schedule_activity with argument"),
    (_limit_more, "schedule_activity with limits"),
    (_retry_more, "schedule_activity with retries"),
    (_wait_longer, "start_timer with seconds"),
    (_hear_something_else, "task started with event 10"),
    (_show_something_else, "upsert_workflow_search_attributes with values"),
    (_answer_otherwise, "task started with event 10"),
    (_command_in_another_order, "is TimerStarted"),
    (_return_something_else, "complete_workflow_execution with result"),
)


@pytest.mark.parametrize(
    ("spoil", "what"), COMMANDED, ids=[spoil.__name__[1:] for spoil, _ in COMMANDED]
)
def test_commands_that_are_not_the_recorded_ones_are_found(spoil: Spoil, what: str) -> None:
    events = _all_of(_read(PATHS["job_finished"]))
    spoil(events)
    assert any(what in one for one in differences(WorkflowHistory("job", events), BY_NAME))
