"""What a site makes of what its devices say."""

import json
import time
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.agent.devices import unit, verbs
from activities.site import device_logs, devices
from activities.site.device_logs import device_log
from activities.site.run_names import RunNames
from activities.storage.run_specs import RunSpec, seal_spec
from tests.activities.hostile_sites import BOOT, DEVICE, DEVICE_RUN, LOG, HostileSite
from tests.activities.sites import REGION, isolated
from tests.failure.hostile_node import Words, answer, frame
from workflows.contracts import errors
from workflows.contracts.devices import DeviceRun, InferenceStatus, device_run_id
from workflows.contracts.sessions import DeviceLogRequest, LogPlace
from workflows.effects.devices import (
    StageOnDevice,
    WatchDevice,
    clear_device,
    stage_on_device,
    stop_device,
    switch_device,
)

RUNNING = DeviceRun(number=2, status=InferenceStatus.RUNNING)


def says(output: dict[str, Any] | None = None, **run: Any) -> bytes:
    head: dict[str, Any] = {"kind": "device", "run": {**DEVICE_RUN, **run}, "boot_id": BOOT}
    return frame(**head if output is None else {**head, "output": output})


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
        (Words(says(exit_code=1 << 31), stays=True), "", errors.PROTOCOL_VIOLATION),
        (Words(b"x" * (65 << 10), stays=True), "", errors.PROTOCOL_VIOLATION),
    ],
    ids=[
        *("it ends", "it is silent", "it has restarted", "odd status", "odd number"),
        *("an exit code that its row has no room for", "no line"),
    ],
)
async def test_a_watch_fails_as_that_of_a_node_does(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch, words: Words, boot_id: str, kind: str
) -> None:
    monkeypatch.setattr(devices, "SILENCE_S", 0.3)
    with pytest.raises(ApplicationError) as failed:
        await watched(hostile, words, boot_id)
    assert failed.value.type == kind


async def test_a_watch_reports_what_waits_of_the_output_once_in_its_interval(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "SILENCE_S", 0.3)
    waits = {"waiting_files": 2, "waiting_bytes": 10, "away": "no route\x1b[2J" + "x" * 999}
    words = Words(says() + says(output=waits) + frame(kind="beat"), stays=True)
    with pytest.raises(ApplicationError, match="silent"):  # A minute has not passed.
        await watched(hostile, words)
    monkeypatch.setattr(devices, "BACKLOG_INTERVAL_S", 0.0)
    found = await watched(hostile, words)
    assert found.does_as(RUNNING)
    assert (found.backlog.waiting_files, found.backlog.waiting_bytes) == (2, 10)
    assert len(found.backlog.away) == 300
    assert "\x1b" not in found.backlog.away
    monkeypatch.setattr(devices, "BACKLOG_INTERVAL_S", 60.0)
    failed = Words(says(output=waits) + says(status="failed", output=waits), stays=True)
    found = await watched(hostile, failed)
    assert (found.status, found.backlog.waiting_files) == (InferenceStatus.FAILED, 2)


@pytest.mark.parametrize("name", ["waiting_files", "dropped_bytes"])
async def test_an_odd_backlog_breaks_the_protocol(hostile: HostileSite, name: str) -> None:
    with pytest.raises(ApplicationError) as failed:
        await watched(hostile, Words(says(output={name: -1}), stays=True))
    assert failed.value.type == errors.PROTOCOL_VIOLATION


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


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("image-away", errors.UNAVAILABLE),
        ("packages-away", errors.UNAVAILABLE),
        ("image", errors.WORK_REFUSED),
        ("packages", errors.WORK_REFUSED),
    ],
)
async def test_a_device_waits_for_a_registry_that_is_away_and_for_no_image_that_is_not_there(
    hostile: HostileSite, code: str, kind: str
) -> None:
    hostile.is_honest()
    refused = {"ok": False, "error": {"code": code, "message": "as podman says"}}
    hostile.machine.says["stage_device"] = Words(json.dumps(refused).encode() + b"\n")
    with pytest.raises(ApplicationError, match="as podman says") as failed:
        await hostile.do("stage_device")
    assert failed.value.type == kind
    assert (kind in stage_on_device.non_retryable) == (kind == errors.WORK_REFUSED)


def log_frame(hostile: HostileSite, content: bytes, offset: int, number: int = 2) -> bytes:
    """Bytes of the log of an assignment, as the device says them."""
    name = RunNames(hostile.node).of(device_run_id(hostile.node.node_id, number))
    return frame(content, kind="log", run_id=name, offset=offset, length=len(content))


async def log_of(hostile: HostileSite, words: bytes, asked: DeviceLogRequest = LOG) -> list[Any]:
    """All that a site reads of the log that the device says."""
    hostile.machine.says["read_device_log"] = Words(words)
    async with device_log(hostile.node, asked) as found:
        return [(one.place.number, one.place.offset, one.payload) async for one in found]


async def test_a_log_is_read_in_pieces_with_their_places(hostile: HostileSite) -> None:
    words = log_frame(hostile, b"first", 0) + frame(kind="beat") + log_frame(hostile, b"later", 8)
    assert await log_of(hostile, words) == [(2, 0, b"first"), (2, 8, b"later")]
    ((_, asked),) = hostile.machine.asked
    assert (asked["last_lines"], asked["follow"]) == (100, False)
    assert await log_of(hostile, b"") == []


async def test_a_log_is_read_on_from_where_a_reader_was_broken_off(hostile: HostileSite) -> None:
    after = DeviceLogRequest(lines=5, follow=True, after=LogPlace(number=7, offset=40))
    await log_of(hostile, log_frame(hostile, b"more", 40, 7), after)
    ((_, asked),) = hostile.machine.asked
    name = RunNames(hostile.node).of(device_run_id(hostile.node.node_id, 7))
    assert (asked["run_id"], asked["offset"], asked.get("last_lines")) == (name, 40, None)


async def test_what_no_log_of_the_device_can_be_is_none(hostile: HostileSite) -> None:
    elsewhere = hostile.node.model_copy(update={"node_id": "dev-other"})
    names = {
        "another device": RunNames(elsewhere).of(device_run_id("dev-other", 2)),
        "no tag": device_run_id(hostile.node.node_id, 2),
        "a job": RunNames(hostile.node).of("job-01jd0000000000000000000000-0-1"),
    }
    wrong = [frame(b"x", kind="log", run_id=n, offset=0, length=1) for n in names.values()]
    wrong.append(log_frame(hostile, b"first", 8) + log_frame(hostile, b"again", 3))
    wrong.append(log_frame(hostile, b"one", 0, 1) + log_frame(hostile, b"two", 3, 2))
    wrong.append(log_frame(hostile, b"far", 1 << 60))
    for words in wrong:
        with pytest.raises(ApplicationError) as failed:
            await log_of(hostile, words)
        assert failed.value.type == errors.PROTOCOL_VIOLATION


SMALL = frame(kind="beat") * 100
LONG_HEADERS = frame(kind="beat", unknown="x" * 10_000) * 12
LONG = frame(b"x" * 10_000, kind="beat", length=10_000) * 12
FLOODS = {"FRAMES": (SMALL, 50, 100), "HEADER_BYTES": (LONG_HEADERS, 50_000, 100_000)}
LEAST_S = 0.4
"""What a flood takes at its rate, with half of it at once; so fast it came before in no time."""


@pytest.mark.parametrize("what", [*FLOODS, "LOG_BYTES"])
async def test_a_device_that_floods_its_log_leaves_time_to_others(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    words, at_once, per_s = {**FLOODS, "LOG_BYTES": (LONG, 50_000, 100_000)}[what]
    monkeypatch.setattr(device_logs, f"{what}_AT_ONCE", at_once)
    monkeypatch.setattr(device_logs, f"{what}_PER_S", per_s)
    began_s = time.monotonic()
    assert await log_of(hostile, words) == []
    assert time.monotonic() - began_s >= LEAST_S


@pytest.mark.parametrize("what", FLOODS)
async def test_a_device_that_floods_its_watch_leaves_time_to_others(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    words, at_once, per_s = FLOODS[what]
    monkeypatch.setattr(devices, f"{what}_AT_ONCE", at_once)
    monkeypatch.setattr(devices, f"{what}_PER_S", per_s)
    began_s = time.monotonic()
    with pytest.raises(ApplicationError, match="ended"):
        await watched(hostile, Words(words))
    assert time.monotonic() - began_s >= LEAST_S


async def test_so_many_read_the_log_of_one_device_at_once(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logs, "MOST_OF_DEVICE", 1)
    hostile.machine.says["read_device_log"] = Words(log_frame(hostile, b"hi", 0), stays=True)
    follows = LOG.model_copy(update={"follow": True})
    async with device_log(hostile.node, follows):
        with pytest.raises(ApplicationError, match="which is the limit"):
            async with device_log(hostile.node, follows):
                pass
    async with device_log(hostile.node, follows):
        pass


async def test_a_followed_log_that_falls_silent_is_no_log_that_has_ended(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_logs, "SILENCE_S", 0.3)
    hostile.machine.says["read_device_log"] = Words(log_frame(hostile, b"hi", 0), stays=True)
    async with device_log(hostile.node, LOG.model_copy(update={"follow": True})) as found:
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
