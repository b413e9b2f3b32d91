"""The life of a device in virtual time: onboarding, assignments, maintenance, the next run."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.engine.engine import Limits
from tests.workflows.devices.edge import DEVICE, ID, Edge, running
from workflows.contracts import errors
from workflows.contracts.devices import (
    DeviceAssignment,
    DeviceProgress,
    DeviceRun,
    DeviceStatus,
    InferenceStatus,
    OutputBacklog,
)
from workflows.contracts.nodes import Hardware
from workflows.contracts.removals import Removal
from workflows.devices.device_lifecycle import UPKEEP_INTERVAL
from workflows.devices.inference import STAGINGS
from workflows.primitives.failures import UNSERVED

HOUR_S = 3600.0
GONE = ApplicationError("a model is not on this device", type=errors.CONTENT_MISSING)
NOTHING = ApplicationError("the image is not there", type=errors.WORK_REFUSED)


# ── onboarding ──────────────────────────────────────────────────────────────────────────────────


def test_a_device_is_active_by_itself_after_its_onboarding() -> None:
    edge = Edge().active()
    statuses = dict.fromkeys(step.status for step in edge.steps)
    assert list(statuses) == ["connecting", "inspecting", "preparing", "active"]
    assert edge.run == DeviceRun()


def test_a_machine_that_is_no_device_is_refused_by_what_it_is() -> None:
    edge = Edge()
    edge.hardware = Hardware(cpu_count=64, memory_bytes=256 << 30, is_root=True)
    edge.begin().until(lambda: edge.status == "failed")
    (message,) = edge.messages("device.failed")
    assert "device shop-1" in message
    assert "Jetson" in message
    assert edge.reason == message
    assert "prepare_node" not in edge.calls


def test_a_refused_machine_is_tried_again_when_it_announces_itself() -> None:
    edge = Edge()
    jetson, edge.hardware = edge.hardware, Hardware(cpu_count=4, memory_bytes=1 << 30)
    edge.begin().until(lambda: edge.status == "failed")
    edge.hardware = jetson
    edge.tell("wake")
    edge.until(lambda: edge.status == "active")
    assert edge.reason is None


# ── assignments ─────────────────────────────────────────────────────────────────────────────────


def test_an_assignment_is_followed_once() -> None:
    edge = running()
    for _ in range(3):
        edge.tell("wake")
        edge.passes(HOUR_S)
    assert (edge.ran, edge.outcomes) == ([1], [(1, None)])
    assert edge.known_run == edge.run == DeviceRun(number=1, status=InferenceStatus.RUNNING)
    assert edge.events.count("device.deploying") == edge.events.count("device.deployed") == 1
    assert edge.specs == set(), "what was sealed for it is gone"


def test_an_assignment_whose_wake_was_lost_is_followed_at_the_next_inspection() -> None:
    edge = Edge().active()
    edge.passes(60)
    edge.deploy(7, wakes=False)
    edge.until(lambda: bool(edge.outcomes), most_s=UPKEEP_INTERVAL.total_seconds() + 60)
    assert (edge.outcomes, edge.ran) == ([(1, None)], [1])


def test_a_revision_that_fails_its_health_check_is_recorded_and_the_earlier_one_runs_on() -> None:
    edge = running()
    edge.bad.add(2)
    edge.deploy(8)
    edge.until(lambda: len(edge.outcomes) == 2)
    edge.passes(3 * HOUR_S)
    assert edge.outcomes[1:] == [(2, "no answer at /health")]
    assert edge.messages("device.deployment-failed") == ["no answer at /health"]
    assert edge.run.number == edge.known_run.number == 1
    assert (edge.status, edge.specs) == ("active", set())


def test_an_assignment_that_cannot_be_brought_to_the_device_leaves_what_runs_there_alone() -> None:
    edge = running()
    edge.failures["stage_on_device"] = [NOTHING]
    edge.deploy(8)
    edge.until(lambda: len(edge.outcomes) == 2)
    assert edge.outcomes[1:] == [(2, "the image is not there")]
    assert edge.calls.count("switch_device") == 1
    assert edge.run.number == edge.known_run.number == 1


def test_a_revision_whose_content_is_gone_from_the_device_is_staged_anew_at_once() -> None:
    edge = running()
    edge.failures["switch_device"] = [GONE]
    edge.deploy(8)
    edge.until(lambda: len(edge.outcomes) == 2, most_s=60)
    assert edge.outcomes[1:] == [(2, None)]
    assert (edge.run.number, edge.ran) == (2, [1, 2])
    assert edge.calls.count("stage_on_device") == 3
    assert f"is staged again: {GONE.message}" in edge.messages("device.deploying")


def test_a_revision_whose_content_is_gone_again_and_again_fails_and_nothing_else_is_touched() -> (
    None
):
    edge = running()
    edge.failures["switch_device"] = [GONE] * (STAGINGS + 1)
    edge.deploy(8)
    edge.until(lambda: len(edge.outcomes) == 2, most_s=HOUR_S)
    assert edge.outcomes[1:] == [(2, GONE.message)]
    assert edge.calls.count("stage_on_device") == 1 + STAGINGS
    assert edge.run.number == edge.known_run.number == 1


def test_a_newer_assignment_takes_the_place_of_one_that_is_under_way() -> None:
    edge = running()
    edge.stage_s = 600
    edge.deploy(8)
    edge.passes(60)
    edge.deploy(9)
    edge.until(lambda: len(edge.outcomes) == 2)
    edge.passes(HOUR_S)
    assert edge.ran == [1, 3], "the second was never switched to"
    assert edge.outcomes == [(1, None), (3, None)]
    assert edge.last_outcome.assignment.revision == 9
    assert edge.at_once == 1, "a device is brought one thing at a time"
    assert edge.specs == set()


def test_a_wake_without_a_newer_assignment_does_not_begin_the_assignment_again() -> None:
    edge = Edge().active()
    edge.stage_s = 600
    edge.deploy(7)
    for _ in range(4):
        edge.passes(60)
        edge.tell("wake")
    edge.until(lambda: edge.outcomes == [(1, None)])
    assert edge.calls.count("stage_on_device") == 1


def test_a_person_stops_the_inference() -> None:
    edge = running()
    edge.deploy(None)
    edge.until(lambda: len(edge.outcomes) == 2)
    edge.passes(3 * HOUR_S)
    assert edge.run.status is edge.known_run.status is InferenceStatus.STOPPED
    assert edge.messages("device.inference-stopped") == ["stopped by ada"]


def test_a_stop_ends_a_deployment_that_is_under_way() -> None:
    edge = Edge().active()
    edge.stage_s = 600
    edge.deploy(7)
    edge.passes(60)
    edge.deploy(None)
    edge.until(lambda: edge.outcomes == [(2, None)], most_s=300)
    edge.passes(HOUR_S)
    assert (edge.ran, edge.specs) == ([], set())


def test_an_inference_that_exits_by_itself_has_failed_and_is_not_started_again() -> None:
    edge = running()
    edge.exits(137)
    edge.until(lambda: edge.known_run.status is InferenceStatus.FAILED)
    edge.passes(3 * HOUR_S)
    assert (edge.known_run.exit_code, edge.ran, edge.status) == (137, [1], "active")
    assert edge.messages("device.inference-failed") == ["exit code 137: out of memory"]


def test_what_waits_of_the_output_is_recorded_and_is_no_event() -> None:
    edge = running()
    said, steps = list(edge.events), len(edge.steps)
    backlog = OutputBacklog(waiting_files=3, waiting_bytes=900, away="no route to host")
    edge.writes(backlog)
    edge.until(lambda: edge.known_run.backlog == backlog)
    assert (edge.events, len(edge.steps)) == (said, steps + 1)
    assert (edge.known_run.number, edge.known_run.status) == (1, InferenceStatus.RUNNING)
    edge.exits(137)
    edge.until(lambda: edge.known_run.status is InferenceStatus.FAILED)
    assert (edge.known_run.backlog, edge.events[-1]) == (backlog, "device.inference-failed")


def test_a_spec_that_cannot_be_removed_is_an_event_and_no_failure_of_the_assignment() -> None:
    edge = Edge().active()
    edge.failures["discard_device_specs"] = [ApplicationError("full", type=errors.REFUSED)]
    edge.deploy(7)
    edge.until(lambda: "device.spec-left" in edge.events)
    assert edge.messages("device.spec-left") == ["what was sealed for it is still stored: full"]
    assert (edge.outcomes, edge.specs) == ([(1, None)], {1})
    edge.deploy(8)
    edge.until(lambda: len(edge.outcomes) == 2)
    edge.passes(60)
    assert edge.specs == set(), "the next assignment removes what is left of earlier ones"


def test_an_assignment_that_no_worker_took_in_time_is_tried_again() -> None:
    edge = Edge().active()
    untaken = ApplicationError("not taken", type=UNSERVED, non_retryable=True)
    edge.failures["stage_on_device"] = [untaken, untaken]
    edge.deploy(7)
    edge.until(lambda: edge.ran == [1], most_s=HOUR_S)
    assert "device.deployment-failed" not in edge.events


# ── what people ask ─────────────────────────────────────────────────────────────────────────────


def test_maintenance_holds_assignments_back() -> None:
    edge = running()
    edge.want(DeviceStatus.MAINTENANCE)
    edge.until(lambda: edge.status == "maintenance")
    edge.deploy(8)
    edge.passes(5 * HOUR_S)
    assert (edge.run.number, edge.outcomes) == (1, [(1, None)])
    edge.want(DeviceStatus.ACTIVE)
    edge.until(lambda: edge.outcomes[1:] == [(2, None)])


def test_maintenance_that_is_asked_for_during_a_switch_begins_after_it() -> None:
    edge = Edge().active()
    edge.switch_s = 600
    edge.deploy(7)
    edge.passes(60)
    edge.want(DeviceStatus.MAINTENANCE)
    edge.until(lambda: edge.outcomes == [(1, None)])
    edge.until(lambda: edge.status == "maintenance", most_s=60)
    edge.deploy(8)
    edge.passes(2 * HOUR_S)
    assert edge.outcomes == [(1, None)]


@pytest.mark.parametrize("asked", ["maintenance", "restart", "newer revision"])
def test_what_an_assignment_came_to_is_recorded_whatever_is_asked_meanwhile(asked: str) -> None:
    """The database is slow just then; without the record a rollout would wait for ever."""
    edge = Edge().active()
    edge.deploy(7)
    edge.until(lambda: edge.ran == [1])
    edge.record_s = 3.0
    edge.passes(1)
    if asked == "maintenance":
        edge.want(DeviceStatus.MAINTENANCE)
    elif asked == "restart":
        edge.tell("reboot")
    else:
        edge.deploy(8)
    edge.passes(300)
    edge.record_s = 0.0
    edge.passes(HOUR_S)
    assert edge.outcomes[0] == (1, None)
    assert edge.known_run == edge.run


def test_a_person_restarts_the_device_and_its_inference_starts_with_it() -> None:
    edge = running()
    edge.tell("reboot")
    edge.until(lambda: edge.boot == 2 and "device.restarted" in edge.events)
    edge.passes(HOUR_S)
    assert (edge.status, edge.boot, edge.ran) == ("active", 2, [1])


def test_a_restart_that_is_refused_is_an_event() -> None:
    edge = running()
    edge.failures["reboot_node"] = [ApplicationError("no", type=errors.NODE_REFUSED)]
    edge.tell("reboot")
    edge.until(lambda: edge.messages("device.reboot-refused") == ["no"])
    assert (edge.status, edge.boot) == ("active", 1)


def test_maintenance_that_is_wanted_while_an_image_is_brought_holds_the_switch() -> None:
    edge = running()
    edge.stage_s = 3000  # A registry that is slow.
    edge.deploy(8)
    edge.passes(60)
    edge.want(DeviceStatus.MAINTENANCE)
    edge.until(lambda: edge.status == "maintenance", most_s=12 * HOUR_S)
    assert edge.ran == [1], "in maintenance a device takes no deployments"


def test_a_restart_that_a_person_asks_for_while_an_image_is_brought_comes_first() -> None:
    edge = running()
    edge.stage_s = 3000
    edge.deploy(8)
    edge.passes(60)
    edge.tell("reboot")
    edge.until(lambda: edge.boot == 2, most_s=600)
    assert edge.ran == [1]
    edge.until(lambda: edge.outcomes[-1] == (2, None), most_s=2 * HOUR_S)
    assert edge.ran == [1, 2]


# ── the next workflow run ───────────────────────────────────────────────────────────────────────


def test_the_next_workflow_run_knows_what_was_followed_and_what_runs() -> None:
    edge = Edge(Limits(suggested_events=80)).active()
    edge.deploy(7)
    edge.until(lambda: edge.outcomes == [(1, None)])
    first = edge.engine.describe(ID).run_id
    for _ in range(40):
        edge.passes(HOUR_S)
    assert edge.engine.describe(ID).run_id != first
    assert (edge.ran, edge.outcomes, edge.status) == ([1], [(1, None)], "active")
    assert edge.events.count("device.inference-running") == 0, "it has known that"
    sequences = [step.sequence for step in edge.steps]
    assert sequences == list(range(1, len(sequences) + 1))
    edge.deploy(8)
    edge.until(lambda: edge.ran == [1, 2])


def adopted(status: DeviceStatus, **changes: object) -> DeviceProgress:
    values = {
        "sequence": 9, "status": status, "resume_status": DeviceStatus.ACTIVE,
        "host": "10.0.0.1", "port": 22, "user": "root", "root": None, "is_adopted": True,
        "followed": DeviceAssignment(number=1, configuration_id="dcf-1", revision=7), **changes,
    }  # fmt: skip
    return DeviceProgress.model_validate(values)


@pytest.mark.parametrize("status", [DeviceStatus.ACTIVE, DeviceStatus.OFFLINE])
def test_a_device_that_is_adopted_from_its_row_goes_on_with_the_assignment_that_is_due(
    status: DeviceStatus,
) -> None:
    edge = Edge()
    edge.run = DeviceRun(number=1, status=InferenceStatus.RUNNING)
    edge.assignment = DeviceAssignment(number=2, configuration_id="dcf-1", revision=8)
    edge.begin(adopted(status, run=edge.run))
    edge.until(lambda: edge.outcomes == [(2, None)])
    assert (edge.ran, edge.status, edge.steps[0].sequence) == ([2], "active", 10)


def test_a_device_that_is_adopted_in_its_removal_is_removed() -> None:
    edge = Edge()
    edge.run = DeviceRun(number=1, status=InferenceStatus.RUNNING)
    edge.begin(adopted(DeviceStatus.REMOVING, removal=Removal()))
    edge.until(lambda: edge.status == "archived")
    assert edge.run == DeviceRun()


def test_a_run_whose_row_is_ahead_stops() -> None:
    edge = running()
    edge.sequence = 1000
    edge.deploy(8)
    edge.passes(2 * HOUR_S)
    assert edge.ran == [1]
    assert edge.engine.describe(ID).search_attributes["ResourceStatus"] == "stale"


# ── the protocol ────────────────────────────────────────────────────────────────────────────────


def test_a_device_that_breaks_the_protocol_fails_until_it_is_announced_anew() -> None:
    edge = running()
    lie = ApplicationError(f"{DEVICE}: too long", type=errors.PROTOCOL_VIOLATION)
    edge.failures["stage_on_device"] = [lie]
    edge.deploy(8)
    edge.until(lambda: edge.status == "failed")
    edge.passes(2 * HOUR_S)
    assert (edge.status, edge.ran) == ("failed", [1])
    edge.tell("wake")
    edge.until(lambda: edge.ran == [1, 2])
    assert edge.status == "active"
