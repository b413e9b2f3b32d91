"""A rollout in rows: who is asked, in which steps, and what becomes of those who were not."""

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlmodel import Session

from activities.db import tables
from activities.db.session import Database
from activities.devices import rollouts, targets
from activities.devices.assignments import ask, next_number
from activities.devices.rollouts import end_rollout, roll_back
from activities.devices.starts import resume_device, start_device
from tests.activities.devices.rollout import FIRST, NAMES, Rollout
from tests.activities.devices.rows import (
    device_of,
)
from tests.activities.rows import NOW
from tests.lab.waiting import wait_until
from workflows.contracts.devices import (
    DeviceAssignment,
    DeviceEvent,
    DeviceRun,
    InferenceStatus,
    OutputBacklog,
)
from workflows.contracts.events import Event
from workflows.contracts.lifecycles import DeviceChanges
from workflows.effects.deployments import EndRollout, RollBack

GREATEST = (1 << 31) - 1
"""The greatest exit code that a device may say."""


def test_as_many_are_asked_as_may_be_unavailable_and_none_that_is_away(rollout: Rollout) -> None:
    state = rollout.advance(max_unavailable=2)
    assert rollout.states == {"a": "asked", "b": "asked", "c": "waiting", "d": "waiting"}
    assert (state.counts.asked, state.counts.away, state.counts.waiting) == (2, 1, 2)
    assignment = rollout.assignment("a")
    asked = (
        assignment.number,
        assignment.configuration_id,
        assignment.revision,
        assignment.deployment_id,
    )
    assert asked == (FIRST, rollout.configuration.id, 1, rollout.deployment.id)
    assert rollout.woken() == {rollout.devices[name].id for name in "ab"}


def test_a_repeated_step_asks_nobody_twice(rollout: Rollout) -> None:
    for _ in range(2):
        rollout.advance(max_unavailable=2)
    assert rollout.states["c"] == "waiting"
    assert rollout.assignment("a").number == FIRST


def test_the_next_device_is_asked_when_one_has_come_to_an_end(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1)
    rollout.ends("a")
    assert rollout.states["a"] == "running"
    assert rollout.deployment.id in rollout.woken()
    rollout.advance(max_unavailable=1)
    assert rollout.states == {"a": "running", "b": "asked", "c": "waiting", "d": "waiting"}


def test_nobody_more_is_asked_after_so_many_failures(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1, max_failures=1)
    rollout.ends("a", "its health check failed\nlast lines")
    state = rollout.advance(max_unavailable=1, max_failures=1)
    assert rollout.states["b"] == "waiting"
    assert (state.counts.failed, state.failures) == (1, ("a: its health check failed",))


def test_a_paused_rollout_is_only_counted(rollout: Rollout) -> None:
    assert rollout.advance(asks=False).counts.waiting == len(NAMES)
    assert set(rollout.states.values()) == {"waiting"}


def test_at_the_end_the_asked_keep_their_assignment_and_the_others_are_withdrawn(
    rollout: Rollout,
) -> None:
    rollout.advance(max_unavailable=1)
    end_rollout(EndRollout(deployment_id=rollout.deployment.id, at=NOW))
    assert rollout.states == {"a": "left", **dict.fromkeys("bcd", "withdrawn")}
    rollout.ends("a")
    assert rollout.states["a"] == "running"


def test_devices_that_are_away_at_the_limit_are_asked_and_left_with_their_assignment(
    rollout: Rollout,
) -> None:
    state = rollout.advance(leaves=True)
    assert rollout.states == {"d": "left", **dict.fromkeys("abc", "waiting")}
    assert (state.counts.left, rollout.assignment("d").revision) == (1, 1)
    assert rollout.woken() == {rollout.devices["d"].id}
    rollout.ends("d")  # It is back, long after.
    assert rollout.states["d"] == "running"


def test_a_newer_deployment_takes_the_devices_that_it_has_asked(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1)
    newer = rollout.deploy(2)
    newer.advance()
    rollout.advance(max_unavailable=1)
    assert rollout.states["a"] == "superseded"
    assert newer.assignment("a").revision == 2
    newer.ends("a")
    assert (rollout.states["a"], newer.states["a"]) == ("superseded", "running")


def test_a_device_that_was_left_leaves_its_deployment_with_the_next_assignment(
    rollout: Rollout,
) -> None:
    rollout.advance(max_unavailable=1)
    rollout.advance(leaves=True)
    end_rollout(EndRollout(deployment_id=rollout.deployment.id, at=NOW))
    newer = rollout.deploy(2)
    newer.advance(max_unavailable=1)
    newer.advance(leaves=True)
    assert rollout.states == {name: "superseded" if name in "ad" else "withdrawn" for name in NAMES}
    assert newer.states["d"] == "left"
    end_rollout(EndRollout(deployment_id=newer.deployment.id, at=NOW))
    with rollout.database.write() as session:  # A person stops it.
        row = session.get_one(tables.Device, rollout.devices["d"].id)
        ask(session, row, DeviceAssignment(number=0, requested_by="eve"), NOW)
    assert (newer.states["a"], newer.states["d"]) == ("left", "superseded")
    newer.ends("a")
    newer.ends("d")  # It is back, and follows the stop.
    assert (newer.states["a"], newer.states["d"]) == ("running", "superseded")


def test_a_deployment_that_ends_leaves_no_device_that_is_asked_for_something_newer(
    rollout: Rollout,
) -> None:
    """The two meet: the end waits for the device until the newer assignment is in its row."""
    rollout.becomes("d", "active")
    rollout.advance()
    command = EndRollout(deployment_id=rollout.deployment.id, at=NOW)
    ends = threading.Thread(target=end_rollout, args=(command,))
    with rollout.database.write() as session:
        device_id = rollout.devices["d"].id
        row = session.get_one(tables.Device, device_id, with_for_update=True)
        ask(session, row, DeviceAssignment(number=0, requested_by="eve"), NOW)
        session.flush()
        ends.start()
        if not rollout.database.is_sqlite:
            wait_until(lambda: _waits_for_a_lock(rollout.database), "the end waits", 10)
    ends.join(30)
    assert (rollout.states["a"], rollout.states["d"]) == ("left", "superseded")


def _waits_for_a_lock(database: Database) -> bool:
    with database.read() as session:
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        return bool(session.connection().exec_driver_sql(query).scalar())


def test_a_rollback_asks_for_what_was_wanted_before(rollout: Rollout) -> None:
    rollout.advance()
    rollout.advance(leaves=True)
    for name in "abc":
        rollout.ends(name)
    newer = rollout.deploy(2)
    newer.advance(max_unavailable=1)
    newer.advance(leaves=True)
    newer.ends("a", "bad")
    for _ in range(2):
        state = roll_back(RollBack(deployment_id=newer.deployment.id, at=NOW))
    assert state.counts.withdrawn == len(NAMES)
    assigned = {
        name: (newer.assignment(name).number, newer.assignment(name).revision) for name in NAMES
    }
    assert assigned == {"a": (FIRST + 2, 1), "b": (FIRST, 1), "c": (FIRST, 1), "d": (FIRST + 2, 1)}


def test_a_rollback_of_the_first_deployment_stops_its_devices(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1)
    roll_back(RollBack(deployment_id=rollout.deployment.id, at=NOW))
    assert (rollout.assignment("a").revision, rollout.assignment("a").configuration_id) == (
        None,
        None,
    )


def test_a_rollback_leaves_a_device_that_a_person_has_asked_since(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1)
    with rollout.database.write() as session:
        row = session.get_one(tables.Device, rollout.devices["a"].id)
        ask(session, row, DeviceAssignment(number=0, requested_by="eve"), NOW)
    roll_back(RollBack(deployment_id=rollout.deployment.id, at=NOW))
    assert (rollout.assignment("a").number, rollout.assignment("a").requested_by) == (
        FIRST + 1,
        "eve",
    )
    assert rollout.states["a"] == "superseded"


def test_a_removed_device_leaves_its_deployments(rollout: Rollout) -> None:
    rollout.advance(max_unavailable=1)
    row = device_of(rollout.database, rollout.devices["a"].id)
    rollout.record(row, "archived", DeviceChanges())
    assert rollout.states["a"] == "superseded"
    assert device_of(rollout.database, row.id).removed_at == NOW
    assert rollout.advance(max_unavailable=1).counts.superseded == 1
    assert rollout.states["b"] == "asked"


def test_what_a_device_runs_is_in_its_row(rollout: Rollout) -> None:
    rollout.advance()
    row = device_of(rollout.database, rollout.devices["a"].id)
    rollout.record(row, "active", DeviceChanges(deploying=rollout.assignment("a")))
    assert device_of(rollout.database, row.id).inference_status == "deploying"
    rollout.ends("a")
    row = device_of(rollout.database, row.id)
    runs = (row.inference_status, row.running_revision, row.followed_number, row.deployed_by)
    assert runs == ("running", 1, FIRST, "ada")
    backlog = OutputBacklog(waiting_files=2, waiting_bytes=10, dropped_files=1, away="no route")
    exited = DeviceRun(
        number=1, status=InferenceStatus.FAILED, exit_code=GREATEST, reason="boom", backlog=backlog
    )
    failed = Event(type=DeviceEvent.INFERENCE_FAILED, message="boom")
    rollout.record(row, "active", DeviceChanges(run=exited), failed)
    row = device_of(rollout.database, row.id)
    said = (row.inference_status, row.exit_code, row.inference_reason, row.running_revision)
    assert said == ("failed", GREATEST, "boom", 1)
    with rollout.database.read() as session:
        resumed = resume_device(session, row, start_device(session, row).argument).resumed_from
    assert resumed is not None
    assert resumed.run == exited


def test_why_a_revision_failed_stays_in_the_row_while_the_one_before_writes(
    rollout: Rollout,
) -> None:
    rollout.advance()
    rollout.ends("a", failed="no line of its log has 'ready'")
    row = device_of(rollout.database, rollout.devices["a"].id)
    backlog = OutputBacklog(waiting_files=2, waiting_bytes=10)
    runs = DeviceRun(number=1, status=InferenceStatus.RUNNING, backlog=backlog)
    rollout.record(row, "active", DeviceChanges(run=runs))
    row = device_of(rollout.database, row.id)
    assert row.inference_reason == "no line of its log has 'ready'"
    assert row.output_backlog == backlog.model_dump()
    with rollout.database.read() as session:
        resumed = resume_device(session, row, start_device(session, row).argument).resumed_from
    assert resumed is not None
    assert resumed.run == runs


def test_a_rollback_returns_to_what_a_device_ran_and_not_to_a_revision_that_failed_on_it(
    rollout: Rollout,
) -> None:
    rollout.advance()
    rollout.ends("a")
    second = rollout.deploy(2)
    second.advance()
    second.ends("a", failed="no line of its log has 'ready'")
    end_rollout(EndRollout(deployment_id=second.deployment.id, at=NOW))
    third = rollout.deploy(3)
    third.advance()
    third.ends("a")
    roll_back(RollBack(deployment_id=third.deployment.id, at=NOW))
    assert rollout.assignment("a").revision == 1


def test_an_end_of_a_rollout_takes_no_outcome_back(rollout: Rollout) -> None:
    """The device comes to its end while the deployment is ended."""
    rollout.advance()
    found = targets.open_targets
    ender = threading.Thread(target=rollout.ends, args=("a",))

    def late(
        session: Session, deployment_id: str
    ) -> Sequence[tuple[tables.DeploymentTarget, tables.Device]]:
        targets = found(session, deployment_id)
        ender.start()
        ender.join(1)  # It waits for the target, or for the only writer.
        return targets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollouts, "open_targets", late)
        end_rollout(EndRollout(deployment_id=rollout.deployment.id, at=NOW))
    ender.join(30)
    assert rollout.states["a"] == "running"


def test_a_device_comes_to_its_end_while_its_deployment_is_rolled_back(
    rollout: Rollout, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout.advance()
    failures: list[str] = []

    def end() -> None:
        try:
            rollout.ends("a")
        except Exception as error:  # noqa: BLE001 - whatever it is
            failures.append(str(error))

    ender = threading.Thread(target=end)
    get_one = Session.get_one

    def late(self: Session, entity: Any, *args: Any, **more: Any) -> Any:
        if entity is tables.Device and more.get("with_for_update") and ender.ident is None:
            self.flush()
            ender.start()
            ender.join(1)  # On PostgreSQL it may have the device by now.
        return get_one(self, entity, *args, **more)

    monkeypatch.setattr(Session, "get_one", late)
    roll_back(RollBack(deployment_id=rollout.deployment.id, at=NOW))
    ender.join(30)
    assert not failures


def test_a_device_follows_what_it_is_asked_after_an_earlier_state_of_the_rows_is_restored() -> None:
    lost = next_number(next_number(0, NOW), NOW)
    assert lost == FIRST + 1, "two in one minute have different numbers"
    later = NOW + timedelta(minutes=5)
    assert next_number(0, later) > lost
    assert next_number(lost + 60, later) == lost + 61, "whatever the clock says"
