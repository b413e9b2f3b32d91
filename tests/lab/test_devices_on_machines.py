"""What a device runs for ever, on whole machines: revisions, restarts, power cuts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.activities.agent.podman import IMAGE
from tests.lab.agent import ROOT, Agent, AgentRefusedError, agent_on
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.test_hardware_on_machines import put_image
from tests.lab.waiting import wait_until

QUICK = {"up_s": 0, "limit_s": 20}
LIMIT_S = 120.0
"""For what takes seconds on a machine that has nothing else to do."""
FOREVER = "echo works; exec sleep %d"


def name_of(number: int) -> str:
    return f"dev-lab-0-{number}-tag"


def sleeper(number: int) -> str:
    """A command that runs for ever, and is seen by its number."""
    return FOREVER % (6000 + number)


async def stage(
    agent: Agent, number: int, command: str, image: str | None = None, **more: object
) -> None:
    spec: dict[str, object] = {
        "command": command,
        "environment": {},
        "runtime": "process",
        "gpu_uuids": [],
        "user": None,
        "grace_s": 1,
        **more,
    }
    await agent.call(
        "stage_device",
        number=number,
        run_id=name_of(number),
        code_sha256=None,
        spec=spec,
        python_packages=[],
        image=image,
        owned=True,
    )


async def switch(agent: Agent, number: int, **health: object) -> dict[str, Any]:
    asked = {**QUICK, **health}
    return await agent.call("switch_device", number=number, run_id=name_of(number), health=asked)


async def deploy(agent: Agent, number: int, command: str, **health: object) -> dict[str, Any]:
    await stage(agent, number, command)
    return await switch(agent, number, **health)


def state_of(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, RuntimeError):
        found = json.loads((machine.disk / f"{ROOT[1:]}/device/state.json").read_text())
    return found


def sleepers(machine: Machine) -> set[str]:
    return {line for line in machine.command_lines() if line.startswith("sleep 60")}


def wait_for_sleeper(machine: Machine, number: int) -> None:
    wait_until(
        lambda: sleepers(machine) == {f"sleep {6000 + number}"}, f"revision {number} runs", LIMIT_S
    )


async def test_a_revision_runs_and_the_next_one_takes_its_place(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        first = await deploy(agent, 1, sleeper(1), log_line="works")
        assert (first["run"]["number"], first["run"]["status"], first["failed"]) == (
            1,
            "running",
            None,
        )
        assert sleepers(machine) == {"sleep 6001"}
        second = await deploy(agent, 2, sleeper(2))
        assert second["run"]["number"] == 2
        assert sleepers(machine) == {"sleep 6002"}
        assert (await switch(agent, 2))["run"] == second["run"]
        older = await switch(agent, 1)
        assert (older["run"]["number"], "request 2" in older["failed"]) == (2, True)
        third = await deploy(agent, 3, sleeper(3))
        assert third["run"]["number"] == 3
    kept = {name_of(2), name_of(3)}
    wait_until(lambda: set(machine.run("ls", f"{ROOT}/runs").split()) == kept, "1 is removed")


async def test_a_revision_that_fails_its_health_check_gives_way_to_the_one_before(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, sleeper(1))
        exited = await deploy(agent, 2, "echo no camera; exit 7", up_s=5)
        assert exited["run"] == {"number": 1, "status": "running", "exit_code": None, "reason": ""}
        assert "exit code 7" in exited["failed"]
        assert "no camera" in exited["failed"]
        wait_for_sleeper(machine, 1)
        silent = await deploy(agent, 3, sleeper(3), log_line="ready", limit_s=1)
        assert "no line of its log has 'ready'" in silent["failed"]
        deaf = await deploy(agent, 4, sleeper(4), http_port=9, http_path="/live", limit_s=1)
        assert "port 9, path /live: asked a status below 400" in deaf["failed"]
        wait_for_sleeper(machine, 1)
        await stage(agent, 4, sleeper(4))  # A repeat, once it is decided, brings nothing.
        assert (await switch(agent, 4))["failed"] == deaf["failed"]
    kept = [name_of(1)]
    wait_until(lambda: machine.run("ls", f"{ROOT}/runs").split() == kept, "failed ones are removed")


async def test_a_device_runs_on_after_a_power_cut_with_nobody_connected(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, sleeper(1))
    machine.run("rm", "-rf", f"{ROOT}/agent")  # The unit has an agent of its own.
    machine.power_cut()
    machine.boot()
    wait_for_sleeper(machine, 1)
    async with agent_on(lab, machine) as agent:
        assert (await agent.call("device_status"))["run"]["status"] == "running"


async def test_a_command_that_exits_by_itself_is_not_started_again_before_the_next_boot(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, "until [ -e go ]; do sleep 0.05; done; echo lens is lost; exit 3")
        machine.run("touch", f"{ROOT}/runs/{name_of(1)}/work/go")
        wait_until(lambda: state_of(machine).get("status") == "failed", "it has failed")
        run = (await agent.call("device_status"))["run"]
        assert (run["status"], run["exit_code"]) == ("failed", 3)
        assert "lens is lost" in run["reason"]
        await agent.call("device_status")
        units = ("systemctl", "list-units", "--all", "--plain", "baseload-device-*")
        wait_until(lambda: "inactive" in machine.run(*units), "its unit has ended")
        machine.run("rm", f"{ROOT}/runs/{name_of(1)}/work/go")
    machine.power_cut()
    machine.boot()
    wait_until(lambda: state_of(machine).get("status") == "running", "it runs again")


async def test_a_stop_survives_a_restart_and_a_clearing_leaves_nothing(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, sleeper(1))
        stopped = await agent.call("stop_device", number=2)
        assert (stopped["run"]["status"], stopped["failed"]) == ("stopped", None)
        assert sleepers(machine) == set()
    machine.power_cut()
    machine.boot()
    async with agent_on(lab, machine) as agent:
        unit = machine.run("ls", "/etc/systemd/system/multi-user.target.wants").strip()
        machine.run("systemctl", "start", unit)  # As the boot does, which may not have come to it.
        assert (await agent.call("device_status"))["run"]["status"] == "stopped"
        assert sleepers(machine) == set()
        await deploy(agent, 3, sleeper(3))
        for _ in range(2):
            await agent.call("clear_device")
        assert sleepers(machine) == set()
        assert machine.run("ls", f"{ROOT}/runs").split() == []
        assert "device" not in machine.run("ls", ROOT).split()
        assert "baseload" not in machine.run("find", "/etc/systemd/system")


def at_phase(machine: Machine, phase: str) -> Callable[[], bool]:
    return lambda: (state_of(machine).get("trial") or {}).get("phase") == phase


@pytest.mark.parametrize(("command", "number"), [(sleeper(2), 2), ("exit 4", 1)])
async def test_a_power_cut_during_the_check_is_finished_by_the_device(
    lab: Lab, boot_machine: BootMachine, command: str, number: int
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, sleeper(1))
        await stage(agent, 2, f"until [ -e go ]; do sleep 0.05; done; echo ready; {command}")
        health = {**QUICK, "log_line": "ready", "up_s": 1}
        await agent.begin_call("switch_device", number=2, run_id=name_of(2), health=health)
        wait_until(at_phase(machine, "checking"), "it is being checked", LIMIT_S)
    machine.power_cut()
    machine.boot()
    wait_until(at_phase(machine, "checking"), "it is being checked again", LIMIT_S)
    machine.run("touch", f"{ROOT}/runs/{name_of(2)}/work/go")
    wait_for_sleeper(machine, number)
    async with agent_on(lab, machine) as agent:
        answer = await switch(agent, 2)
        assert answer["run"]["number"] == number
        assert (answer["failed"] is None) == (number == 2)


async def test_a_machine_without_systemd_is_no_device(lab: Lab, boot_machine: BootMachine) -> None:
    machine = boot_machine("sshd")
    async with agent_on(lab, machine) as agent:
        with pytest.raises(AgentRefusedError, match="needs systemd") as refused:
            await stage(agent, 1, sleeper(1))
        assert refused.value.code == "no-unit"
        await agent.call("clear_device")


NULL = ("c", "1", "3")
"""The number of a device that the kernel has everywhere, and that everybody may open."""
WAITS = """
echo first: $(ls /dev/video*)
until [ -c /dev/video9 ]; do sleep 0.1; done
head -c 1 /dev/video9 && echo opened
until [ ! -e /dev/video9 ]; do sleep 0.1; done
echo unplugged
exec sleep 6001
"""


async def test_a_camera_that_is_plugged_in_later_can_be_opened(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    machine.run("mknod", "-m", "666", "/dev/video0", *NULL)
    async with agent_on(lab, machine) as agent:
        await stage(agent, 1, WAITS, user="baseload-job", has_media=True)
        await switch(agent, 1, log_line="first: /dev/video0")
        machine.run("mknod", "-m", "600", "/dev/video9", *NULL)
        log = f"{ROOT}/runs/{name_of(1)}/log"
        wait_until(lambda: "opened" in machine.run("cat", log), "it has opened the camera", 20)
        machine.run("rm", "/dev/video9")
        wait_until(lambda: "unplugged" in machine.run("cat", log), "the camera has gone", 20)
        said = machine.run("cat", log).splitlines()
        assert said == ["first: /dev/video0", "opened", "unplugged"]


async def test_the_log_of_what_runs_is_followed_and_the_watch_says_that_it_has_failed(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, "echo one; until [ -e go ]; do sleep 0.05; done; echo two; exit 2")
        log = await agent.begin_call("read_device_log", follow=True, eof=False)
        watch = await agent.begin_call("watch_device", eof=False)
        assert json.loads(await watch.stdout.readline())["run"]["status"] == "running"
        assert json.loads(await log.stdout.readline())["offset"] == 0
        assert await log.stdout.readline() == "one\n"
        machine.run("touch", f"{ROOT}/runs/{name_of(1)}/work/go")
        said = [await log.stdout.readline()]
        while said[-1] != "two\n":
            said.append(await log.stdout.readline())
        while (found := json.loads(await watch.stdout.readline()))["kind"] == "beat":
            continue
        assert (found["run"]["status"], found["run"]["exit_code"]) == ("failed", 2)
        rest = (await log.stdout.read()).splitlines()
        assert {json.loads(line)["kind"] for line in rest} <= {"beat"}  # It has ended with its run.
        last = await agent.begin_call("read_device_log", last_lines=1, most_bytes=100)
        head, *lines = (await last.stdout.read()).splitlines()
        assert (json.loads(head)["offset"], lines) == (4, ["two"])
        other = await agent.begin_call("read_device_log", run_id=name_of(7), follow=True)
        assert await other.stdout.read() == ""


def keeper_of(machine: Machine) -> set[str]:
    return set(machine.run("sh", "-c", "pgrep -x baseload-device || true").split())


async def test_a_keeper_that_was_killed_is_started_again_and_what_it_ran_as_well(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        await deploy(agent, 1, sleeper(1))
        killed = keeper_of(machine)
        machine.run("pkill", "-KILL", "-x", "baseload-device")
        wait_until(lambda: bool(keeper_of(machine) - killed), "another keeper runs", LIMIT_S)
        wait_for_sleeper(machine, 1)
        assert (await agent.call("device_status"))["run"]["status"] == "running"


async def test_a_keeper_that_was_ended_in_any_phase_is_followed_by_one_that_finishes(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    ended_in = (("stopping", 0, True), ("starting", 1, True), ("starting", 3, False))
    async with agent_on(lab, machine) as agent:
        for at, (phase, starts, is_good) in enumerate((*ended_in, ("returning", 1, False))):
            before = 2 * at + 1
            await deploy(agent, before, sleeper(before))
            await end_keeper_in(phase, starts, agent, machine, before)
            answer = await switch(agent, before + 1)
            number = before + 1 if is_good else before
            assert answer["run"] == {**RUNS, "number": number}, f"{phase}, {starts} starts"
            assert (answer["failed"] is None) == is_good
            wait_for_sleeper(machine, number)


RUNS = {"status": "running", "exit_code": None, "reason": ""}


async def end_keeper_in(
    phase: str, starts: int, agent: Agent, machine: Machine, before: int
) -> None:
    """End the keeper, and let the disk say that it was so far with the next revision."""
    number = before + 1
    await stage(agent, number, sleeper(number))
    unit = machine.run("ls", "/etc/systemd/system/multi-user.target.wants").strip()
    machine.run("systemctl", "stop", unit)
    assert sleepers(machine) == set(), "all of it has ended"
    lost = (await agent.call("device_status"))["run"]
    assert (lost["status"], "keeper" in lost["reason"]) == ("failed", True)
    folder = machine.disk / f"{ROOT[1:]}/device"
    trial = {"number": number, "run_id": name_of(number), "health": QUICK, "phase": phase}
    trial |= {"starts": starts, "was": RUNS, "why": "it was bad"}
    asked = {"number": number, "kind": "switch", "run_id": name_of(number), "health": QUICK}
    state = {**state_of(machine), "trial": trial, "status": "deploying"}
    (folder / "asked.json").write_text(json.dumps(asked))
    (folder / "state.json").write_text(json.dumps(state))


IN_IMAGE = """
echo begins
until [ -c /dev/video9 ]; do sleep 0.1; done
cat /dev/video9 && echo opened
exec sleep 6001
"""


async def test_a_container_runs_on_after_a_power_cut_and_sees_what_is_plugged_in_later(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    put_image(machine)
    async with agent_on(lab, machine) as agent:
        more: dict[str, Any] = {"runtime": "podman", "image": IMAGE}
        await stage(agent, 1, IN_IMAGE, user="baseload-job", has_media=True, **more)
        assert (await switch(agent, 1, up_s=1))["failed"] is None
    log = f"{ROOT}/runs/{name_of(1)}/log"
    machine.run("rm", log)
    machine.power_cut()
    machine.boot()
    wait_until(lambda: "begins" in machine.run("cat", log, check=False), "it runs again", LIMIT_S)
    machine.run("mknod", "-m", "600", "/dev/video9", *NULL)
    wait_until(lambda: "opened" in machine.run("cat", log), "it has opened the camera", LIMIT_S)
    async with agent_on(lab, machine) as agent:
        await agent.call("clear_device")
    assert sleepers(machine) == set()
