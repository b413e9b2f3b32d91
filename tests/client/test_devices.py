"""Devices, their configurations and deployments from the command."""

import asyncio
import json
from datetime import UTC, datetime

import pytest
from baseload.commands import waiting

from activities.db import tables
from tests.api.device_rows import configuration, device, edge_region, set_to
from tests.api.http_server import host_key
from tests.api.sessions.device_sites import EOF, OPENED, DeviceSites, at
from tests.api.sessions.device_sites import refused as refused_by_site
from tests.api.test_deployments import credit
from tests.client.conftest import Desk


@pytest.fixture
def region_id(desk: Desk) -> str:
    """A region that takes devices, of an account that has credits."""
    credit(desk.site, desk.person, 10)
    return asyncio.run(edge_region(desk.site, desk.person))


@pytest.fixture
def device_id(desk: Desk, region_id: str) -> str:
    """The device shop-1, set to the configuration detector."""

    async def made() -> str:
        found = await device(desk.site, desk.person, region_id)
        await set_to(desk.person, await configuration(desk.person, region_id), found)
        return found

    return asyncio.run(made())


def ended(desk: Desk, status: str, **counts: int) -> str:
    """Let the only deployment have ended so; its id."""
    (row,) = desk.site.rows(tables.DeviceDeployment)
    desk.site.set(
        tables.DeviceDeployment, row.id, status=status, status_reason="all of it", counts=counts
    )
    found: str = row.id
    return found


def test_a_device_is_added_listed_set_acted_on_and_removed(desk: Desk, region_id: str) -> None:
    asked = ("--region", "home", "--minion-id", host_key()[1], "--address", "10.0.0.9")
    made = desk.json("device", "add", "shop-1", *asked, "--no-upnp")
    assert (made["name"], made["upnp"], made["address"]) == ("shop-1", False, "10.0.0.9")
    desk.site.set(tables.Device, made["id"], status="active", inference_status="failed")
    config = asyncio.run(configuration(desk.person, region_id))
    assert (
        desk.json("device", "set", "shop-1", "--config", "detector")["configuration_id"] == config
    )
    filters = ("--region", "home", "--status", "active", "--config", "detector")
    for verb in ("ls", "list"):
        shown = desk.baseload("device", verb, *filters, "--inference", "failed").out
        assert "detector 1" in shown
        assert "nothing (not yet deployed)" in shown
    assert desk.json("device", "ls", "--inference", "running")["items"] == []
    for verb in ("maintenance", "activate", "reboot", "stop"):
        assert "shop-1" in desk.baseload("device", verb, "shop-1").out
    (row,) = desk.site.rows(tables.Device)
    assert row.wanted_status == "active"
    assert row.assignment_number > row.followed_number
    shown = desk.baseload("device", "show", "shop-1").out
    for words in ("root@10.0.0.9:22", "to run nothing", "not followed yet", "detector 1"):
        assert words in shown
    assert "device.requested" in desk.baseload("events", "shop-1").out
    assert desk.json("device", "set", "shop-1", "--config", "none")["configuration_id"] is None
    assert desk.baseload("device", "rm", "shop-1", "--yes").out.endswith("  shop-1  removing\n")


def test_what_a_jetson_says_of_itself_is_shown(desk: Desk, device_id: str) -> None:
    jetson = {
        "model_text": "Jetson Orin Nano", "l4t_release": "36.3.0", "jetpack": "6.0",
        "power_mode": "15W", "temperatures_c": {"cpu": 51.5}, "gpu_load": 40,
    }  # fmt: skip
    hardware = {"cpu_count": 6, "memory_bytes": 8 * 1024**3, "jetson": jetson}
    desk.site.set(tables.Device, device_id, hardware=hardware, model="orin-nano", exit_code=3)
    shown = desk.baseload("device", "show", device_id).out
    for words in ("36.3.0", "15W", "cpu 51.5 °C", "40%", "8.0 GiB", "exit code"):
        assert words in shown


def test_a_configuration_is_made_changed_compared_and_removed(desk: Desk, region_id: str) -> None:
    made = desk.json(
        "device-config", "create", "detector", "--region", "home", "--command", "python a.py",
        "--image", "ghcr.io/shop/detector:1", "--env", "THRESHOLD=0.6", "--env", "OLD=hidden",
        "--http-port", "8080", "--http-path", "/ready", "--disk-size-gb", "20",
    )  # fmt: skip
    assert made["latest"]["environment"]["variables"] == ["OLD", "THRESHOLD"]
    changed = desk.baseload(
        "device-config", "update", "detector", "--env", "THRESHOLD=0.7", "--image", "x:2",
        "--unset", "environment.variables.OLD", "--unset", "health.http_path",
    )  # fmt: skip
    assert changed.out.endswith("  detector  revision 2\n"), changed.err
    differences = desk.baseload("device-config", "diff", "detector").out
    assert differences == desk.baseload("device-config", "diff", "detector", "1", "2").out
    for words in ("environment.image", "x:2", "environment.variables.OLD", "removed", "http_path"):
        assert words in differences
    assert not {"0.6", "0.7", "hidden"} & set(differences.split())
    shown = desk.baseload("device-config", "show", "detector", "--revision", "1").out
    assert "up for 10 s, port 8080 answers at /ready, within 300 s" in shown
    assert desk.json("device-config", "list")["items"][0]["latest_revision"] == 2
    assert desk.baseload("device-config", "rm", "detector").out.endswith("  detector  removed\n")


def test_people_are_shown_by_name(desk: Desk, device_id: str) -> None:
    desk.baseload("deploy", "shop-1", "--no-wait")
    (deployed,) = desk.site.rows(tables.DeviceDeployment)
    desk.site.set(
        tables.Device, device_id, deployed_at=datetime.now(UTC), deployed_by=desk.person.user_id,
        assignment_number=1, assignment_at=datetime.now(UTC), assignment_by=desk.person.user_id,
        assignment_deployment_id=deployed.id,
    )  # fmt: skip
    for command, count in (
        (("device", "show", "shop-1"), 2),
        (("deployment", "show", deployed.id), 1),
        (("device-config", "show", "detector"), 2),
    ):
        shown = desk.baseload(*command).out
        assert shown.count("ada@example.test") == count, shown
        assert desk.person.user_id not in shown
    assert (
        f"by ada@example.test with {deployed.id}" in desk.baseload("device", "show", "shop-1").out
    )


MISTAKES = {
    (): "say what changes",
    ("--env", "NOT_SET_HERE"): "is not set in this shell",
    ("--secret", "TOKEN"): "asked NAME=SECRET",
    ("--path", "shop-7"): "say of which datastore",
    ("--image", "x:2", "--unset", "environment.image"): "another option sets it",
    ("--command", "true", "--unset", "command.line"): "command has no fields",
}


def test_an_option_that_says_nothing_is_a_mistake_and_makes_no_revision(
    desk: Desk, device_id: str
) -> None:
    for options, said in MISTAKES.items():
        refused = desk.baseload("device-config", "update", "detector", *options)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert len(desk.site.rows(tables.DeviceRevision)) == 1


def test_a_configuration_is_deployed_to_all_its_devices_or_to_some(
    desk: Desk, device_id: str
) -> None:
    options = ("--max-unavailable", "2", "--max-failures", "1", "--rollback", "--limit", "10m")
    made = desk.json("deploy", "detector", *options, "--no-wait")
    limits = {"max_unavailable": 2, "max_failures": 1, "rolls_back": True, "limit_s": 600}
    assert made["policy"] == limits
    ended(desk, "finished", running=1)
    other = desk.json("deploy", device_id, "--revision", "1", "--no-wait")
    assert [other["counts"]["waiting"], other["revision"]] == [1, 1]
    listed = desk.json("deployment", "ls", "--config", "detector", "--status", "finished")
    assert [each["id"] for each in listed["items"]] == [made["id"]]
    assert "shop-1" in desk.baseload("deployment", "show", other["id"]).out
    unknown = desk.baseload("deploy", "nothing-like-it", "--no-wait")
    assert (unknown.code, "no device has the id or the name" in unknown.err) == (2, True)


def test_a_name_of_both_a_configuration_and_a_device_is_asked_about(
    desk: Desk, region_id: str, device_id: str
) -> None:
    asyncio.run(device(desk.site, desk.person, region_id, "detector"))
    refused = desk.baseload("deploy", "detector", "--no-wait")
    assert (refused.code, "say which by id" in refused.err) == (2, True)
    assert desk.site.rows(tables.DeviceDeployment) == []


def test_the_exit_code_of_a_deployment_says_whether_a_device_has_failed(
    desk: Desk, device_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = desk.json("deploy", "detector", "--no-wait")
    monkeypatch.setattr(waiting, "POLL_INTERVAL_S", 0.01)
    for failed in (0, 1):
        ended(desk, "finished", running=1 - failed, failed=failed)
        followed = desk.baseload("deployment", "follow", made["id"])
        assert (followed.code, "shop-1" in followed.out) == (failed, True), followed.err
        assert "detector 1: finished" in followed.err


def test_a_deployment_takes_orders(desk: Desk, device_id: str) -> None:
    made = desk.json("deploy", "detector", "--no-wait")
    for order in ("pause", "stop", "roll-back"):
        assert desk.json("deployment", order, made["id"])["id"] == made["id"]
    asked = [argument for verb, argument in desk.site.asked_of(made["id"]) if verb == "order"]
    assert [each["action"] for each in asked] == ["pause", "stop", "roll_back"]
    refused = desk.baseload("deployment", "resume", made["id"])
    assert (refused.code, "must be paused to resume" in refused.err) == (3, True)


def test_what_waits_and_what_was_dropped_of_the_output_is_shown(desk: Desk, device_id: str) -> None:
    said = {"waiting_files": 3, "waiting_bytes": 2048, "dropped_files": 1, "dropped_bytes": 512}
    desk.site.set(tables.Device, device_id, output_backlog={**said, "away": "no route to host"})
    assert "3 files, 2.0 KiB" in desk.baseload("device", "ls").out
    shown = desk.baseload("device", "show", "shop-1").out
    for words in ("3 files, 2.0 KiB", "1 file, 512 B", "no route to host"):
        assert words in shown


def test_the_log_of_a_device_is_printed_without_control_characters(
    desk: Desk, device_id: str
) -> None:
    sites = DeviceSites(OPENED, at(7), b"one\x1b[2J\n", b"caf\xc3\xa9\n", EOF)
    desk.site.app.state.switchboard = sites
    refused = desk.baseload("device", "logs", "shop-1")
    assert "nothing was ever deployed to it" in refused.err
    assert sites.asked == []
    desk.site.set(tables.Device, device_id, assignment_number=4)
    printed = desk.baseload("device", "logs", "shop-1", "--lines", "5")
    assert (printed.code, sites.asked[0][1].lines) == (0, 5)
    assert printed.out.endswith("café\n")
    assert "one" in printed.out
    assert "\x1b" not in printed.out
    followed = desk.baseload("device", "logs", "shop-1", "-f", "--lines", "5")
    assert (followed.out, followed.code) == (printed.out, 0)
    assert "what it ran has ended" in followed.err
    lines = desk.baseload("device", "logs", "shop-1", "-f", "--json").out.splitlines()
    assert json.loads(lines[0]) == {"offset": 7, "text": "one\x1b[2J\n"}
    with desk.client() as client:
        assert client.device_log_of(device_id, lines=5) == b"one\x1b[2J\ncaf\xc3\xa9\n"
        assert "".join(client.follow_device_log(device_id)).endswith("café\n")


def test_a_log_that_breaks_off_is_an_error_of_the_command(desk: Desk, device_id: str) -> None:
    silent = refused_by_site("node-lost", "its log was silent for 12 s")
    desk.site.app.state.switchboard = DeviceSites(OPENED, at(0), b"hi\n", silent)
    desk.site.set(tables.Device, device_id, assignment_number=4)
    broken = desk.baseload("device", "logs", "shop-1", "-f")
    assert (broken.out, broken.code != 0) == ("hi\n", True)
    assert "device shop-1: its log: its log was silent for 12 s" in broken.err
