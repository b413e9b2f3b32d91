"""The end of a device: removed, away or not, and what it leaves."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.workflows.devices.edge import ID, Edge, running
from workflows.contracts import errors
from workflows.contracts.devices import DeviceRun, InferenceStatus
from workflows.contracts.removals import Removal

HOUR_S = 3600.0


def test_a_removed_device_runs_nothing_and_has_nothing_of_ours() -> None:
    edge = running()
    edge.tell("remove", Removal())
    edge.until(lambda: edge.status == "archived")
    assert (edge.run, edge.staged, edge.specs) == (DeviceRun(), set(), set())
    assert edge.calls[-1] == "restore_logins"
    edge.passes(1)
    assert edge.engine.describe(ID).status == "completed"


@pytest.mark.parametrize("takes", ["stage_s", "switch_s"])
def test_nothing_runs_after_a_removal_while_an_assignment_is_under_way(takes: str) -> None:
    edge = running()
    setattr(edge, takes, 600)
    edge.deploy(8)
    edge.passes(60)
    edge.tell("remove", Removal())
    edge.until(lambda: edge.status == "archived", most_s=300)
    edge.passes(2 * HOUR_S)
    assert (edge.run, edge.specs, edge.ran) == (DeviceRun(), set(), [1])


def test_a_device_that_is_away_is_removed_and_says_that_it_may_run_on() -> None:
    edge = running()
    edge.is_lost()
    edge.until(lambda: edge.status == "offline")
    edge.tell("remove", Removal(force=True))
    edge.until(lambda: edge.status == "archived", most_s=300)
    assert edge.messages("device.inference-left") == [
        "its inference may still run there: the device cannot be reached"
    ]
    assert edge.calls.count("clear_device") == 1, "only before it was active"


def test_output_that_is_lost_with_its_device_is_an_event() -> None:
    edge = running()
    edge.unstored_files = 3
    edge.tell("remove", Removal())
    edge.until(lambda: edge.status == "archived", most_s=300)
    assert edge.messages("device.output-lost") == ["3 files of its output were on no datastore yet"]


def test_what_an_earlier_device_has_left_on_the_machine_ends_before_it_is_active() -> None:
    edge = Edge()
    edge.run = DeviceRun(number=7, status=InferenceStatus.RUNNING)
    edge.active()
    assert edge.run == DeviceRun()


def test_a_device_that_is_announced_anew_after_a_failure_keeps_what_it_runs() -> None:
    edge = running()
    edge.failures["watch_device"] = [ApplicationError("torn", type=errors.PROTOCOL_VIOLATION)]
    edge.is_back()
    edge.exits(1)
    edge.until(lambda: edge.status == "failed")
    edge.tell("wake")
    edge.until(lambda: edge.status == "active")
    assert edge.calls.count("clear_device") == 1


def test_a_device_is_removed_before_it_was_ever_reached() -> None:
    edge = Edge()
    edge.is_reachable = False
    edge.begin().until(lambda: "device.not-reached" in edge.events)
    edge.tell("remove", Removal())
    edge.until(lambda: edge.status == "archived", most_s=300)
    assert "clear_device" not in edge.calls
