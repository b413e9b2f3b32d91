"""The idle workload on whole machines: its walls, and that each run comes first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncssh
import pytest

from tests.activities.agent.podman import IMAGE
from tests.activities.agent.registry import serving_image
from tests.lab.agent import ROOT, Agent, agent_on
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.test_hardware_on_machines import put_image
from tests.lab.waiting import wait_until

REACHES = 'timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/22" && echo reached || echo walled'
"""Whether the machine's own SSH server can be reached."""
PROBE = f"id -u; id -g; {REACHES}; cat /proc/self/status"
STUBBORN = "trap '' TERM; sleep 7001; :"
"""A workload that heeds no TERM."""
JOB = "sleep 7100"


async def prepare(agent: Agent) -> str:
    """The account of jobs, on a machine that has the network wall."""
    wall: dict[str, Any] = {"networks": [], "ports": []}
    prepared = await agent.call(
        "prepare", exclusive=False, authorized_key="", peers=[], network_wall=wall
    )
    assert prepared["no_wall_reason"] is None
    return str(prepared["job_user"])


async def switch_on(agent: Agent, command: str, image: str | None = None) -> None:
    workload = {"revision": "1", "command": command, "image": image, "idle_after_s": 0.1}
    await agent.call("switch_idle_workload", workload=workload)


@contextmanager
def image_for(lab: Lab, machine: Machine, runtime: str) -> Iterator[str | None]:
    """The image of a workload with this runtime, as a registry serves it; None: it has none."""
    if runtime != "podman":
        yield None
        return
    put_image(machine)
    machine.run("podman", "save", "-q", "--format", "oci-dir", "-o", "/tmp/layout", IMAGE)
    layout, host = machine.disk / "tmp/layout", lab.network.host_address
    with serving_image(layout, is_private=False, host=host) as registry:
        (machine.disk / "etc/containers/registries.conf").write_text(registry.settings)
        yield f"{registry.address}/model:1"


def workloads(machine: Machine) -> set[str]:
    return {line for line in machine.command_lines() if line.startswith("sleep 7001")}


def said_by(machine: Machine, runs: str) -> tuple[list[str], dict[str, str]]:
    """What PROBE has said in the log of the only run there: its lines, and its status in /proc."""
    lines = machine.run("sh", "-c", f"cat {ROOT}/{runs}/log").splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    first = next(number for number, line in enumerate(lines) if line.isdigit())
    return lines[first : first + 3], status


@pytest.mark.parametrize("runtime", ["systemd", "podman"])
async def test_it_has_the_walls_of_a_job_and_is_gone_when_a_job_is_staged(
    lab: Lab, boot_machine: BootMachine, runtime: str
) -> None:
    machine = boot_machine("systemd")
    with image_for(lab, machine, runtime) as image:
        await check_walls(lab, machine, image)


async def check_walls(lab: Lab, machine: Machine, image: str | None) -> None:
    async with agent_on(lab, machine) as agent:
        user = await prepare(agent)
        await agent.begin("job-restbeside-0-1", PROBE, "systemd", user=user)
        await agent.exited("job-restbeside-0-1")
        _, group, reach = said_by(machine, "runs/job-restbeside-0-1")[0]
        assert "reached" in machine.run("bash", "-c", REACHES), "root reaches it"

        command = f"{PROBE}; {STUBBORN}"
        await switch_on(agent, command, image)
        wait_until(lambda: workloads(machine), "the workload")
        lines, status = said_by(machine, "idle/runs/*")
        accounts = machine.run("getent", "group", group).split(":")
        assert accounts[0] == "baseload-job"
        assert (lines[0] != "0", lines[1:]) == (True, [group, reach])
        assert reach == "walled"
        assert (status["NoNewPrivs"], int(status["CapEff"], 16)) == ("1", 0)

        await agent.begin("job-restfirst-0-1", JOB, "systemd", user=user)
        assert workloads(machine) == set()
        assert JOB in machine.command_lines()
        await agent.call("end", run_id="job-restfirst-0-1", grace_s=0)
        wait_until(lambda: workloads(machine), "the workload is back")
        await agent.call("release")
        assert workloads(machine) == set()


async def test_a_start_alone_ends_it_and_after_a_power_cut_it_waits_for_every_run(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    late, aside = f"{ROOT}/runs/job-restlate-0-1", f"{ROOT}/aside"
    async with agent_on(lab, machine) as agent:
        user = await prepare(agent)
        await agent.begin("job-restlate-0-0", "true", "systemd", user=user)
        await agent.exited("job-restlate-0-0")
        spec = {"command": JOB, "runtime": "systemd", "user": user, "grace_s": 1}
        await agent.call("stage", run_id="job-restlate-0-1", spec=spec)
        machine.run("mv", late, aside)  # As if the workload had come after the staging.
        await switch_on(agent, STUBBORN)
        wait_until(lambda: workloads(machine), "the workload")
        machine.run("pkill", "-KILL", "-f", "keep_idle_workload")
        machine.run("mv", aside, late)
        assert workloads(machine), "it goes on without its keeper"
        await agent.call("start", run_id="job-restlate-0-1")
        assert workloads(machine) == set()
        machine.power_cut()
    machine.boot()
    async with agent_on(lab, machine) as agent:
        assert (await agent.look("job-restlate-0-1"))["state"] == "lost"
        watch = await agent.begin_call("watch", eof=False, idle_workload_s=0.1)
        await keeper_looks(machine, watch)
        await agent.begin("job-restnext-0-1", JOB, "systemd", user=user)
        await agent.call("end", run_id="job-restlate-0-1", grace_s=0)
        await keeper_looks(machine, watch)
        await agent.call("end", run_id="job-restnext-0-1", grace_s=0)
        wait_until(lambda: workloads(machine), "it is back when no run is left")
        watch.stdin.write_eof()


async def keeper_looks(machine: Machine, watch: asyncssh.SSHClientProcess[str]) -> None:
    """Wait until the keeper runs and the watch has said twice that the workload waits."""
    wait_until(
        lambda: any("keep_idle_workload" in line for line in machine.command_lines()), "the keeper"
    )
    for _ in range(2):
        frame = {"kind": ""}
        while frame["kind"] != "idle_workload":
            frame = json.loads(await watch.stdout.readline())
        assert frame["state"] == "waiting"
        assert workloads(machine) == set()
