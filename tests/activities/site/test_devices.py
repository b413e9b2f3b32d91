"""What a site makes of what its devices say."""

from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.agent.devices import unit, verbs
from activities.site import device_logs, devices
from activities.site.device_logs import device_log
from activities.storage.run_specs import RunSpec, seal_spec
from tests.activities.hostile_sites import BOOT, DEVICE, DEVICE_RUN, HostileSite
from tests.activities.sites import REGION, isolated
from tests.failure.hostile_node import Words, answer, frame
from workflows.contracts import errors
from workflows.contracts.devices import DeviceRun, InferenceStatus, device_run_id
from workflows.effects.devices import (
    StageOnDevice,
    WatchDevice,
    clear_device,
    stage_on_device,
    stop_device,
    switch_device,
)

RUNNING = DeviceRun(number=2, status=InferenceStatus.RUNNING)


def says(**run: Any) -> bytes:
    return frame(kind="device", run={**DEVICE_RUN, **run}, boot_id=BOOT)


async def watched(hostile: HostileSite, words: Words, boot_id: str = "") -> DeviceRun:
    """What a watch of a device that runs the second assignment comes to."""
    hostile.machine.says["watch_device"] = words
    command = WatchDevice(node=hostile.node, known=RUNNING, boot_id=boot_id)
    found = await hostile.perform(devices.watch_device, command)
    run: DeviceRun = found.run
    return run


async def test_a_watch_ends_when_the_device_does_something_else(hostile: HostileSite) -> None:
    failed = says(status="failed", exit_code=3, reason="the lens is lost\x1b[2J")
    words = Words(says() + frame(kind="beat") + says() + failed, stays=True)
    found = await watched(hostile, words, BOOT)
    assert (found.status, found.exit_code) == (InferenceStatus.FAILED, 3)
    assert found.reason.startswith("the lens is lost")
    assert "\x1b" not in found.reason


@pytest.mark.parametrize(
    ("words", "boot_id", "kind"),
    [
        (Words(says() + frame(kind="beat")), "", errors.NODE_UNREACHABLE),
        (Words(says(), stays=True), "", errors.NODE_UNREACHABLE),
        (Words(says(), stays=True), "another-boot", errors.OUTCOME_UNKNOWN),
        (Words(says(status="dancing"), stays=True), "", errors.PROTOCOL_VIOLATION),
        (Words(says(number=-1), stays=True), "", errors.PROTOCOL_VIOLATION),
        (Words(b"x" * (65 << 10), stays=True), "", errors.PROTOCOL_VIOLATION),
    ],
    ids=["it ends", "it is silent", "it has restarted", "odd status", "odd number", "no line"],
)
async def test_a_watch_fails_as_that_of_a_node_does(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch, words: Words, boot_id: str, kind: str
) -> None:
    monkeypatch.setattr(devices, "SILENCE_S", 0.3)
    with pytest.raises(ApplicationError) as failed:
        await watched(hostile, words, boot_id)
    assert failed.value.type == kind


async def test_a_switch_says_what_the_device_runs_and_why_it_is_not_what_was_asked(
    hostile: HostileSite,
) -> None:
    hostile.is_honest()
    found = await hostile.do("switch_device")
    assert (found.run, found.failed) == (RUNNING, None)
    back = {"run": {**DEVICE_RUN, "number": 1}, "failed": "the command ended with exit code 7"}
    hostile.machine.says["switch_device"] = answer(**back)
    found = await hostile.do("switch_device")
    assert (found.run.number, found.failed) == (1, "the command ended with exit code 7")


async def test_a_machine_that_starts_nothing_at_its_boot_is_sent_nothing(
    hostile: HostileSite,
) -> None:
    hostile.is_honest()
    state = {"run": DEVICE_RUN, "boot_id": BOOT, "no_unit_reason": "found no /run/systemd/system"}
    hostile.machine.says["device_status"] = answer(**state)
    with pytest.raises(ApplicationError, match="found no /run/systemd") as refused:
        await hostile.do("stage_device")
    assert refused.value.type == errors.NODE_REFUSED
    assert [verb for verb, _ in hostile.machine.asked] == ["device_status"]


async def test_nothing_is_brought_for_an_assignment_that_has_come_to_its_end(
    hostile: HostileSite,
) -> None:
    hostile.is_honest()
    hostile.machine.says["device_status"] = answer(run=DEVICE_RUN, boot_id=BOOT, done=2)
    await hostile.do("stage_device")
    assert [verb for verb, _ in hostile.machine.asked] == ["device_status"]


@pytest.mark.parametrize("changed", [{"node_id": "dev-other"}, {"job_user": None}])
async def test_a_spec_that_was_sealed_for_another_device_is_refused(
    hostile: HostileSite, changed: dict[str, Any]
) -> None:
    hostile.is_honest()
    isolation = isolated(hostile.node).model_copy(update=changed)
    if "job_user" in changed:
        isolation = isolation.model_copy(update={"login_user": "somebody"})
    run_id = device_run_id(hostile.node.node_id, 2)
    spec = RunSpec(run_id=run_id, command="true", isolation=isolation)
    reference = seal_spec(f"device-specs/{DEVICE}/2", REGION, spec)
    command = StageOnDevice(node=hostile.node, number=2, spec=reference)
    with pytest.raises(ApplicationError, match="sealed") as refused:
        await hostile.perform(devices.stage_on_device, command)
    assert refused.value.type == errors.REFUSED


async def test_a_log_is_read_in_pieces_with_their_places(hostile: HostileSite) -> None:
    pieces = [(8, b"later"), (0, b"first")]
    heads = [
        frame(content, kind="log", run_id="dev-x-0-1-t", offset=offset, length=len(content))
        for offset, content in reversed(pieces)
    ]
    hostile.machine.says["read_device_log"] = Words(b"".join(heads))
    async with device_log(hostile.node, last_bytes=100) as found:
        assert [(one.offset, one.payload) async for one in found] == pieces[::-1]


async def test_a_followed_log_that_falls_silent_is_no_log_that_has_ended(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logs, "SILENCE_S", 0.3)
    piece = frame(b"hi", kind="log", run_id="dev-x-0-1-t", offset=0, length=2)
    hostile.machine.says["read_device_log"] = Words(piece, stays=True)
    async with device_log(hostile.node, follows=True) as found:
        assert (await anext(found)).payload == b"hi"
        with pytest.raises(ApplicationError, match="silent") as failed:
            await anext(found)
    assert failed.value.type == errors.NODE_UNREACHABLE


def test_each_limit_is_below_that_of_whoever_waits_for_it() -> None:
    """So the words of the device win over those of a timeout."""
    assert verbs.LIMIT_S < devices.SWITCH_S < switch_device.start_to_close_s
    assert stage_on_device.start_to_close_s > devices.STAGE_S + devices.STATUS_S
    assert unit.STOP_S < devices.STOP_S < stop_device.start_to_close_s
    assert unit.STOP_S < devices.CLEAR_S < clear_device.start_to_close_s
