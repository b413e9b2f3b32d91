"""A machine becomes a node: in either order, over a restart, and never under a false key."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncssh
import pytest

from tests.docs.snippets import blocks
from tests.e2e.platform import Platform, Refused, Site
from tests.e2e.stack import RunningStack
from tests.lab.fixtures import BootMachine
from tests.lab.hardware import put_gpus
from tests.lab.machines import Lab
from tests.lab.ssh import connect
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


def test_a_machine_announced_before_it_is_added_becomes_a_node(
    platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    uuids = put_gpus(machine, "NVIDIA A100-SXM4-80GB", 2)
    site.announce(machine)
    node = site.add(machine)
    found = platform.until_status(node, "maintenance")
    assert found["hardware"]["hostname"] == machine.name
    assert [gpu["uuid"] for gpu in found["gpus"]] == uuids
    assert "systemd" in found["hardware"]["runtimes"]
    site.activate(node)
    assert platform.get(node)["status"] == "active"


def test_the_lines_of_the_guide_add_a_second_machine(
    stack: RunningStack, platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    region = platform.get(f"/v1/regions/{site.region_id}")["name"]

    def types(line: str) -> str:
        here = line.replace("home", region).replace("MACHINE", machine.name)
        return baseload(stack, here.replace("SHA256:…", machine.minion_id))

    shown, add, activate = (
        line
        for block in blocks("docs/second-machine.md")
        for line in block.text.splitlines()
        if line.startswith("baseload")
    )
    told = machine.run("sh", "-c", types(shown))
    assert machine.minion_id in told
    types(add)
    types(activate)
    [node] = platform.items("/v1/nodes", region_id=site.region_id)
    assert platform.until_status(f"/v1/nodes/{node['id']}", "active")["name"] == machine.name


def baseload(stack: RunningStack, line: str) -> str:
    """What the command prints that a person types beside the stack."""
    own = {"BASELOAD_API": stack.url, "BASELOAD_API_KEY": stack.administrator_key}
    program = Path(sys.executable).parent / "baseload"
    return subprocess.run(
        [program, *shlex.split(line)[1:]],
        env={**os.environ, **own, "BASELOAD_ALLOW_PLAIN_HTTP": "1"},
        capture_output=True,
        check=True,
        text=True,
    ).stdout


def test_a_machine_added_before_it_is_announced_waits_for_its_other_half(
    platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    node = site.add(machine)
    assert platform.until_status(node, "connecting")["minion_id"] == machine.minion_id
    site.announce(machine)
    platform.until_status(node, "maintenance")


def test_a_restart_in_the_middle_of_preparation_is_not_a_failure(
    platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    machine.run("touch", "/run/reboot-required")
    first = machine.init_pid
    site.announce(machine)
    node = site.add(machine)
    platform.until_status(node, "maintenance", limit_s=150)
    assert machine.init_pid != first, "the machine was not restarted"
    told = platform.events(node)
    assert "node.restarted" in told
    assert "node.failed" not in told


def test_a_machine_with_another_host_key_is_refused_at_first_contact(
    platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    claimed = machine.minion_id
    site.announce(machine)
    shown = machine.change_host_key()
    body = {"region_id": site.region_id, "name": machine.name, "minion_id": claimed}
    node = f"/v1/nodes/{platform.post('/v1/nodes', body)['id']}"
    failed = platform.until_status(node, "failed")
    assert claimed in failed["status_reason"]
    assert shown not in failed["status_reason"]
    assert not (machine.disk / "var/lib/baseload/agent").exists(), "it was let near the machine"


def test_a_second_node_with_the_same_minion_id_is_refused(
    platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    site.add(machine)
    with pytest.raises(Refused) as refused:
        site.add(machine, name="another")
    assert refused.value.status == 409
    assert machine.minion_id in refused.value.problem["detail"]


async def test_a_node_serves_the_platform_alone(
    lab: Lab, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    site.join(machine)
    for options in ({"username": "owner", "password": "owner-password", "client_keys": None}, {}):
        with pytest.raises(asyncssh.PermissionDenied):
            async with connect(lab, machine, **options):
                pass


def test_a_machine_that_misses_requirements_fails_with_what_was_found(
    platform: Platform, make_site: Callable[..., Site], boot_machine: BootMachine
) -> None:
    site = make_site(relaxed_requirements=[])
    machine = boot_machine()
    site.announce(machine)
    failed = platform.until_status(site.add(machine), "failed")
    missed = [demand for demand in failed["requirements"] if not demand["passed"]]
    assert {"tpm-2", "nvme-drives", "sata-drives"} <= {demand["name"] for demand in missed}
    assert all(demand["found"] for demand in missed)


def test_removal_while_a_job_runs_needs_force_and_then_ends_the_job(
    platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    [node] = site.join(machine)
    job = platform.job("sleep 5011", site.region_id)
    platform.until_status(job, "running")
    with pytest.raises(Refused) as refused:
        platform.ask("DELETE", node)
    assert refused.value.status == 409
    platform.ask("DELETE", node, params={"force": "true"})
    platform.until_status(node, "archived", limit_s=150)
    ended = platform.until_status(job, "failed", "canceled", limit_s=150)
    assert "removed" in ended["status_reason"]
    assert "sleep 5011" not in machine.command_lines()


def test_a_person_restarts_a_node_and_it_comes_back_as_it_was(
    platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    [node] = site.join(machine)
    first = machine.init_pid
    platform.post(f"{node}/reboot")
    wait_until(lambda: machine.init_pid not in (None, first), "a new PID 1", 150)
    wait_until(lambda: "node.restarted" in platform.events(node), "the restart is told", 150)
    back = platform.until_status(node, "active")
    assert back["minion_id"] == machine.minion_id


def test_a_node_that_cannot_reach_another_of_its_region_fails_and_names_it(
    platform: Platform, make_site: Callable[..., Site], boot_machine: BootMachine
) -> None:
    site = make_site(relaxed_requirements=["tpm-2", "nvme-drives", "sata-drives"])
    first, second = boot_machine(), boot_machine()
    site.join(first)
    second.run("ip", "route", "add", "unreachable", first.address)
    site.announce(second)
    failed = platform.until_status(site.add(second), "failed")
    assert first.address in failed["status_reason"]
