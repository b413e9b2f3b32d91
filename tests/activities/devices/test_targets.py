"""Devices of a rollout that are lost, leave it, or are thousands."""

import pytest

from activities.db import tables
from activities.devices import rollouts, targets
from activities.devices.rollouts import end_rollout, roll_back
from tests.activities.devices.rollout import NAMES, Rollout
from tests.activities.devices.rows import (
    device_of,
)
from tests.activities.rows import NOW
from workflows.contracts.devices import AssignmentOutcome, DeviceEvent, DeviceRun, InferenceStatus
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DeviceChanges
from workflows.effects.deployments import EndRollout, RollBack
from workflows.rules.devices.rollout import LOST_LIMIT


def test_a_revision_that_takes_devices_offline_does_not_go_on_to_the_others(
    rollout: Rollout,
) -> None:
    rollout.becomes("d", "active")
    for _ in NAMES:
        rollout.advance(max_unavailable=1, max_failures=1)
        for name, state in rollout.states.items():
            if state == "asked":
                rollout.becomes(name, "offline")
    rollout.advance(max_unavailable=1, max_failures=1, at=NOW + LOST_LIMIT)
    assert rollout.states == {"a": "failed", **dict.fromkeys("bcd", "waiting")}


def test_an_outage_of_the_site_does_not_bring_a_revision_to_all_devices_at_once(
    rollout: Rollout,
) -> None:
    for name in NAMES:
        rollout.becomes(name, "offline")
    assert rollout.advance(max_unavailable=1, max_failures=1).counts.away == len(NAMES)
    for name in NAMES:
        rollout.becomes(name, "active")
    state = rollout.advance(max_unavailable=1, max_failures=1)
    assert (state.counts.asked, state.counts.waiting) == (1, 3)


def test_a_device_that_is_back_wakes_its_deployment(rollout: Rollout) -> None:
    rollout.advance(asks=False)
    assert rollout.woken() == set()
    rollout.becomes("d", "active")
    assert rollout.woken() == {rollout.deployment.id}


def test_a_device_that_is_given_up_has_failed_until_it_is_back_and_runs_the_revision(
    rollout: Rollout,
) -> None:
    rollout.advance(max_unavailable=1)
    rollout.becomes("a", "offline")
    rollout.advance(max_unavailable=1)
    rollout.advance(max_unavailable=1, at=NOW + LOST_LIMIT / 2)
    assert rollout.states["a"] == "asked"
    state = rollout.advance(max_unavailable=1, max_failures=9, at=NOW + LOST_LIMIT)
    assert (state.counts.failed, state.counts.lost) == (1, 1)
    assert state.failures == ("a: it could not be reached since it was asked",)
    assert (rollout.states["a"], rollout.states["b"]) == ("failed", "asked")
    rollout.becomes("a", "active")
    rollout.ends("a")
    assert rollout.states["a"] == "running"
    assert rollout.advance(asks=False).counts.lost == 0


def test_when_a_whole_step_is_lost_no_more_are_asked_until_a_person_goes_on(
    rollout: Rollout,
) -> None:
    rollout.advance(max_unavailable=2)
    for name in ("a", "b"):
        rollout.becomes(name, "offline")
    for at in (NOW, NOW + LOST_LIMIT, NOW + 2 * LOST_LIMIT):
        state = rollout.advance(max_unavailable=2, at=at)
    rollout.advance(max_unavailable=2, leaves=True, at=NOW + 2 * LOST_LIMIT)
    assert rollout.states == {"a": "failed", "b": "failed", "c": "waiting", "d": "waiting"}
    assert state.counts.lost == 2
    rollout.advance(max_unavailable=2, accepted=2, at=NOW + 2 * LOST_LIMIT)
    assert (rollout.states["c"], rollout.states["d"]) == ("asked", "waiting")


def test_a_device_that_is_given_up_and_fails_when_it_is_back_says_why(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1)
    rollout.becomes("a", "offline")
    for at in (NOW, NOW + LOST_LIMIT):
        rollout.advance(max_unavailable=1, at=at)
    rollout.ends("a", "its health check failed")
    state = rollout.advance(max_unavailable=1)
    assert state.failures == ("a: its health check failed",)


def test_outages_of_a_device_are_not_added_up(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1)
    rollout.becomes("a", "offline")
    rollout.advance(max_unavailable=1)
    rollout.becomes("a", "active")
    rollout.advance(max_unavailable=1)
    rollout.becomes("a", "offline")
    for _ in range(2):
        rollout.advance(max_unavailable=1, at=NOW + LOST_LIMIT)
    assert rollout.states["a"] == "asked"


@pytest.mark.parametrize("says", ["when the newer one has failed", "to its watch"])
def test_a_revision_that_a_device_runs_although_a_newer_one_was_asked_is_its_running_one(
    rollout: Rollout, says: str
) -> None:
    """A device finishes a switch by itself while the newer revision is brought to it."""
    rollout.advance()
    overtaken = rollout.assignment("a").number
    rollout.deploy(2).advance()
    row = device_of(rollout.database, rollout.devices["a"].id)
    run = DeviceRun(number=overtaken, status=InferenceStatus.RUNNING)
    changes = DeviceChanges(run=run)
    if says == "when the newer one has failed":
        outcome = AssignmentOutcome(assignment=rollout.assignment("a"), failed="no image")
        changes = DeviceChanges(run=run, outcome=outcome)
    runs = Event(type=DeviceEvent.INFERENCE_RUNNING, message="runs")
    rollout.record(row, "active", changes, runs)
    row = device_of(rollout.database, row.id)
    assert (row.running_configuration_id, row.running_revision) == (rollout.configuration.id, 1)
    assert (row.deployed_at, row.deployed_by) == (NOW, rollout.deployment.requested_by)


def test_a_stopped_device_runs_nothing_whatever_it_ran_last(rollout: Rollout) -> None:
    rollout.advance()
    number = rollout.assignment("a").number
    row = device_of(rollout.database, rollout.devices["a"].id)
    stopped = Event(type=DeviceEvent.INFERENCE_STOPPED, message="stopped")
    rollout.record(row, "active", DeviceChanges(run=DeviceRun(number=number)), stopped)
    assert device_of(rollout.database, row.id).running_revision is None


def test_a_device_that_a_person_holds_in_maintenance_has_not_failed(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1, max_failures=1)
    rollout.becomes("a", "maintenance")
    for at in (NOW, NOW + LOST_LIMIT):
        rollout.advance(max_unavailable=1, max_failures=1, at=at)
    assert (rollout.states["a"], rollout.states["b"]) == ("left", "asked")
    rollout.ends("a")
    assert rollout.states["a"] == "running"


@pytest.mark.parametrize("is_set", [True, False])
def test_a_device_that_is_set_to_another_configuration_is_not_asked(
    rollout: Rollout, is_set: bool
) -> None:
    rollout.advance(max_unavailable=1)
    with rollout.database.write() as session:
        other = None
        if is_set:
            values = {**rollout.configuration.model_dump(), "id": "dcf-other", "name": "other"}
            session.add(tables.DeviceConfiguration.model_validate(values))
            session.flush()
            other = "dcf-other"
        for name in "abd":
            session.get_one(tables.Device, rollout.devices[name].id).configuration_id = other
    rollout.ends("a")
    rollout.advance(max_unavailable=3)
    rollout.advance(leaves=True)
    left = {"a": "running", "b": "superseded", "c": "asked", "d": "superseded"}
    assert rollout.states == left
    assert device_of(rollout.database, rollout.devices["b"].id).assignment_number == 0


def test_each_transaction_changes_some_devices_until_none_is_left(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (rollouts, targets):
        monkeypatch.setattr(module, "BATCH", 2)
    assert rollout.advance().has_more
    assert list(rollout.states.values()).count("asked") == 2
    assert not rollout.advance().has_more
    assert list(rollout.states.values()).count("asked") == 3
    command = RollBack(deployment_id=rollout.deployment.id, at=NOW)
    more = [roll_back(command).has_more for _ in range(3)]
    assert (more, set(rollout.states.values())) == ([True, True, False], {"withdrawn"})


def test_an_end_changes_some_devices_until_none_is_left(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (rollouts, targets):
        monkeypatch.setattr(module, "BATCH", 2)
    rollout.advance(max_unavailable=2)
    command = EndRollout(deployment_id=rollout.deployment.id, at=NOW)
    assert [end_rollout(command).has_more for _ in range(3)] == [True, True, False]
    assert sorted(rollout.states.values()) == ["left", "left", "withdrawn", "withdrawn"]


def test_a_step_waits_for_no_device_that_comes_to_its_end(rollout: Rollout) -> None:
    """What a device holds is left to the next step; its outcome is not overwritten."""
    rollout.advance()
    rollout.becomes("a", "offline")
    key = rollout.deployment.id, rollout.devices["a"].id
    with rollout.database.write() as session:
        held = session.get_one(tables.DeploymentTarget, key, with_for_update=True)
        if not rollout.database.is_sqlite:  # There, writers follow each other.
            rollout.advance(at=NOW + LOST_LIMIT)
        held.state = "running"
        session.add(held)
    assert rollout.advance(at=NOW + LOST_LIMIT).counts.running == 1
    assert rollout.states["a"] == "running"
