"""The lab itself: machines are what they claim to be, and nothing of them stays."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import asyncssh
import pytest

from tests.lab.fixtures import BootMachine
from tests.lab.hardware import break_gpus, put_gpus
from tests.lab.host import cgroups, execute, start_ticks
from tests.lab.machine import Kind
from tests.lab.machines import Lab
from tests.lab.ssh import connect, known_hosts
from tests.lab.waiting import wait_until

KINDS: tuple[Kind, ...] = ("sshd", "systemd")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_machine_is_reached_with_its_pinned_key(
    lab: Lab, boot_machine: BootMachine, kind: Kind
) -> None:
    machine = boot_machine(kind)
    async with connect(lab, machine) as connection:
        told = await connection.run("hostname; ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    hostname, fingerprint = str(told.stdout).splitlines()
    assert hostname == machine.name
    assert machine.minion_id in fingerprint.split()


async def test_a_changed_host_key_is_not_the_pinned_one(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    before, id_before = known_hosts(machine), machine.minion_id
    assert machine.change_host_key() != id_before
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        async with connect(lab, machine, known_hosts=before):
            pass
    async with connect(lab, machine):
        pass


def starts(pids: Iterable[int]) -> set[tuple[int, int]]:
    """Those of these processes that live, each with the tick at which it began."""
    return {(pid, ticks) for pid in pids if (ticks := start_ticks(pid)) is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_cut_ends_everything_and_keeps_the_disk(
    boot_machine: BootMachine, kind: Kind
) -> None:
    machine = boot_machine(kind)
    machine.run("sh", "-c", "echo kept > /var/lib/kept; echo lost > /tmp/lost; sync")
    began = starts(machine.pids())
    machine.power_cut()
    assert began
    assert not began & starts(pid for pid, _ in began)
    assert not machine.greets()
    machine.boot()
    assert machine.run("cat", "/var/lib/kept") == "kept\n"
    assert machine.run("ls", "/tmp") == ""


async def test_a_network_cut_is_silent_and_heals(lab: Lab, boot_machine: BootMachine) -> None:
    machine = boot_machine()
    async with connect(lab, machine) as connection:
        machine.cut_network()
        answer = asyncio.create_task(connection.run("true"))
        done, _ = await asyncio.wait([answer], timeout=0.4)
        assert not done, "somebody told us"
        with pytest.raises((asyncssh.Error, OSError)):
            await answer
        assert not machine.greets()
    machine.heal_network()
    machine.wait_for_ssh()
    async with connect(lab, machine) as connection:
        assert (await connection.run("true")).exit_status == 0


async def test_what_runs_survives_a_restart_of_sshd_and_a_network_cut(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    async with connect(lab, machine) as connection:
        await connection.run("setsid nohup sleep 4321 > /dev/null 2>&1 < /dev/null &")
    machine.cut_network()
    machine.heal_network()
    machine.restart_sshd(drop_sessions=True)
    assert "sleep 4321" in machine.command_lines()


def test_the_systemd_machine_runs_transient_units(boot_machine: BootMachine) -> None:
    machine = boot_machine("systemd")
    assert machine.run("cat", "/proc/1/comm") == "systemd\n"
    assert machine.run("systemctl", "is-system-running", "--wait") == "running\n"
    machine.run("systemd-run", "--unit", "sleeper", "sh", "-c", "sleep 4322 & sleep 4323")
    wait_until(lambda: "sleep 4322" in machine.command_lines(), "both sleepers")
    machine.run("systemctl", "kill", "--signal", "KILL", "sleeper")
    wait_until(lambda: not any("sleep 432" in line for line in machine.command_lines()), "none")


@pytest.mark.parametrize("kind", KINDS)
def test_a_machine_that_restarts_itself_comes_back(boot_machine: BootMachine, kind: Kind) -> None:
    machine = boot_machine(kind)
    if kind == "systemd":  # One that still starts its units may wait for them first.
        machine.run("systemctl", "is-system-running", "--wait", check=False)
    first = machine.init_pid
    machine.run(
        "systemctl", "reboot", *(["--force", "--force"] if kind == "sshd" else []), check=False
    )
    wait_until(lambda: machine.init_pid not in (None, first), "a new PID 1", limit_s=90)
    machine.wait_for_ssh()
    assert machine.run("hostname").strip() == machine.name


async def test_machines_reach_each_other_and_nothing_else(
    lab: Lab, boot_machine: BootMachine
) -> None:
    one, other = boot_machine(), boot_machine()
    async with connect(lab, one) as connection:
        greeting = await connection.run(f"head -c 4 < /dev/tcp/{other.address}/22")
        beyond = await connection.run("bash -c ': < /dev/tcp/192.0.2.1/53'")
    assert greeting.stdout == "SSH-"
    assert "Network is unreachable" in str(beyond.stderr)


async def test_the_gpu_double_answers_a_query_as_nvidia_smi_does(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    uuids = put_gpus(machine, "NVIDIA A100-SXM4-80GB", 2)
    query = "nvidia-smi --query-gpu=index,uuid,memory.total --format=csv,noheader,nounits"
    async with connect(lab, machine) as connection:
        told = await connection.run(query)
        assert told.stdout == f"0, {uuids[0]}, 81920\n1, {uuids[1]}, 81920\n"
        break_gpus(machine, "Failed to initialize NVML: Driver/library version mismatch", 18)
        told = await connection.run(query)
    assert (told.exit_status, told.stdout) == (
        18,
        "Failed to initialize NVML: Driver/library version mismatch\n",
    )


async def test_a_small_disk_fills_up(lab: Lab, boot_machine: BootMachine) -> None:
    machine = boot_machine()
    machine.small_disk("/var/lib/baseload", size_mib=2)
    async with connect(lab, machine) as connection:
        told = await connection.run("head -c 4M /dev/zero > /var/lib/baseload/big")
    assert "No space left on device" in str(told.stderr)


def test_packages_are_installed_from_the_machines_own_wheels(boot_machine: BootMachine) -> None:
    machine = boot_machine()
    machine.run("/usr/bin/python3", "-m", "venv", "/opt/venv")
    machine.run("/opt/venv/bin/pip", "install", "--no-input", "labgreet")
    assert "hello" in machine.run(
        "/opt/venv/bin/python", "-c", "import labgreet as l; print(l.greeting())"
    )


def test_a_closed_lab_leaves_nothing() -> None:
    with Lab() as lab:
        machine = lab.add("gone", "systemd")
        machine.small_disk("/mnt", 1)
        began = starts(machine.pids() | {lab.network.switch_pid})
        link = lab.network.link
    assert began
    assert not began & starts(pid for pid, _ in began)
    assert link not in execute("ip", "-br", "link").split()
    assert lab.id not in Path("/proc/self/mountinfo").read_text()
    assert not [group.folder for group in cgroups(lab.id, ".") if group.folder.exists()]
    assert not lab.folder.exists()


def test_a_lab_whose_process_was_killed_is_swept_by_the_next() -> None:
    script = (
        "import os, signal\n"
        "from tests.lab.machines import Lab\n"
        "lab = Lab()\n"
        "machine = lab.add('orphan', 'systemd')\n"
        "print(lab.id, lab.network.link, *machine.pids(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    name, link, *pids = told.stdout.split()
    assert pids, told.stderr
    wait_until(
        lambda: not any(start_ticks(int(pid)) for pid in pids), "the orphan's processes are gone"
    )
    Lab().close()
    assert not (Path("/var/tmp") / name).exists()
    assert not [group.folder for group in cgroups(name, ".") if group.folder.exists()]
    assert link not in execute("ip", "-br", "link").split()
