"""A device that is away: lost, under a deployment or not, and back."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.workflows.devices.edge import LOST, running
from workflows.contracts import errors
from workflows.contracts.devices import DeviceStatus, InferenceStatus, WatchLost

HOUR_S = 3600.0


def test_a_device_that_is_lost_is_offline_and_back_with_what_it_runs() -> None:
    edge = running()
    edge.is_lost()
    edge.until(lambda: edge.status == "offline")
    assert LOST in (edge.reason or "")
    edge.passes(20 * HOUR_S)
    edge.is_back()
    edge.until(lambda: edge.status == "active")
    assert (edge.ran, edge.run.number, edge.reason) == ([1], 1, None)


@pytest.mark.parametrize(("queue", "watches"), [("site/watches", 1), ("site/reg-1/watches", 0)])
def test_a_watch_that_was_lost_with_its_process_is_begun_again_for_the_same_queue(
    queue: str, watches: int
) -> None:
    edge = running()
    edge.passes(60)
    before = edge.calls.count("watch_device")
    edge.tell("watch_lost", WatchLost(queue=queue))
    edge.passes(60)
    assert edge.calls.count("watch_device") == before + watches
    edge.exits(3)
    edge.until(lambda: edge.known_run.status == "failed", most_s=HOUR_S)


def test_an_assignment_while_the_device_is_away_waits_for_it() -> None:
    edge = running()
    edge.is_lost()
    edge.until(lambda: edge.status == "offline")
    edge.deploy(8)
    edge.passes(30 * HOUR_S)
    assert edge.outcomes == [(1, None)]
    edge.is_back()
    edge.until(lambda: edge.outcomes[1:] == [(2, None)])
    assert edge.ran == [1, 2]


def test_of_the_assignments_while_a_device_is_away_the_newest_is_followed() -> None:
    edge = running()
    edge.is_lost()
    edge.until(lambda: edge.status == "offline")
    for revision in (8, 9, 10):
        edge.deploy(revision)
        edge.passes(HOUR_S)
    edge.is_back()
    edge.until(lambda: len(edge.outcomes) == 2)
    assert (edge.ran, edge.last_outcome.assignment.revision) == ([1, 4], 10)


def test_what_a_device_did_while_it_was_away_is_known_when_it_is_back() -> None:
    edge = running()
    edge.is_lost()
    edge.until(lambda: edge.status == "offline")
    edge.exits(1)
    edge.restarts()
    edge.is_back()
    edge.until(lambda: edge.known_run.status is InferenceStatus.FAILED)
    assert edge.events.count("device.restarted") == 1


def test_a_device_that_is_lost_while_an_assignment_is_under_way_is_soon_offline_and_keeps_it() -> (
    None
):
    edge = running()
    edge.stage_s = 600
    edge.deploy(8)
    edge.passes(60)
    edge.is_lost()
    edge.until(lambda: edge.status == "offline", most_s=900)
    assert edge.outcomes == [(1, None)]
    edge.passes(10 * HOUR_S)
    edge.is_back()
    edge.until(lambda: edge.outcomes[1:] == [(2, None)])
    assert edge.ran == [1, 2]


def test_a_short_loss_while_an_assignment_is_under_way_fails_no_assignment() -> None:
    edge = running()
    lost = ApplicationError(LOST, type=errors.NODE_UNREACHABLE)
    edge.failures["stage_on_device"], edge.failures["switch_device"] = [lost], [lost]
    edge.deploy(8)
    edge.until(lambda: len(edge.outcomes) == 2)
    assert edge.outcomes[1:] == [(2, None)]
    assert "device.offline" not in edge.events


def test_a_device_that_restarts_by_itself_is_inspected_again() -> None:
    edge = running()
    before = edge.calls.count("inspect_node")
    edge.restarts()
    edge.until(lambda: edge.calls.count("inspect_node") == before + 1)
    edge.passes(60)
    assert (edge.status, edge.ran) == ("active", [1])


def test_maintenance_that_is_asked_for_while_it_is_away_begins_when_it_is_back() -> None:
    edge = running()
    edge.is_lost()
    edge.until(lambda: edge.status == "offline")
    edge.want(DeviceStatus.MAINTENANCE)
    edge.passes(HOUR_S)
    edge.is_back()
    edge.passes(HOUR_S)
    assert edge.status == "maintenance"


def test_a_device_that_was_lost_under_a_deployment_and_is_held_says_what_it_runs() -> None:
    edge = running()
    edge.stage_s = 600
    edge.deploy(8)
    edge.passes(60)
    edge.want(DeviceStatus.MAINTENANCE)
    edge.passes(5)
    edge.is_lost()
    edge.until(lambda: edge.status == "offline")
    edge.is_back()
    edge.until(lambda: edge.status == "maintenance")
    edge.passes(3 * HOUR_S)
    last = [c for c in edge.changes if c.run is not None or c.deploying is not None][-1]
    assert last.deploying is None, "its row says for ever that it is being deployed to"
