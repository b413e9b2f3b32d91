"""The node agent on whole machines: both inits, restarts, power cuts, logins."""

from __future__ import annotations

import asyncio

import asyncssh
import pytest

from tests.activities.agent.debian import DebianRepository, repository
from tests.lab.agent import AgentRefusedError, agent_on
from tests.lab.fixtures import BootMachine
from tests.lab.hardware import break_gpus, put_gpu_devices, put_gpus
from tests.lab.machine import Kind, Machine
from tests.lab.machines import Lab
from tests.lab.ssh import connect
from tests.lab.waiting import wait_until

__all__ = ["repository"]
ON_EACH: tuple[tuple[Kind, str], ...] = (
    ("sshd", "process"),
    ("systemd", "process"),
    ("systemd", "systemd"),
)
# Two grandchildren, of which one has left its parents' session and ignores being asked.
FAMILY = """
sleep 5001 &
(trap '' TERM; setsid sh -c 'trap "" TERM; sleep 5002; :') &
sleep 5003
"""


def family(machine: Machine) -> set[str]:
    return {line for line in machine.command_lines() if line.startswith("sleep 500")}


@pytest.mark.parametrize(("kind", "runtime"), ON_EACH)
async def test_a_run_outlives_its_connection_and_reports_its_exit(
    lab: Lab, boot_machine: BootMachine, kind: Kind, runtime: str
) -> None:
    machine = boot_machine(kind)
    async with agent_on(lab, machine) as agent:
        gate = "until [ -e go ]; do sleep 0.05; done; exit 3"
        begun = await agent.begin("job-lab-0-1", gate, runtime)
        assert begun["state"] == "running"
    machine.restart_sshd(drop_sessions=True)
    async with agent_on(lab, machine) as agent:
        assert (await agent.look("job-lab-0-1"))["state"] == "running"
        machine.run("touch", "/var/lib/baseload/runs/job-lab-0-1/work/go")
        ended = await agent.exited("job-lab-0-1")
    assert (ended["exit_code"], ended["reason"]) == (3, "exited")


@pytest.mark.parametrize(("kind", "runtime"), ON_EACH)
async def test_end_leaves_no_process_of_the_tree(
    lab: Lab, boot_machine: BootMachine, kind: Kind, runtime: str
) -> None:
    machine = boot_machine(kind)
    async with agent_on(lab, machine) as agent:
        await agent.begin("job-lab-0-2", FAMILY, runtime)
        wait_until(lambda: len(family(machine)) == 3, "the whole family is up")
        ended = await agent.call("end", run_id="job-lab-0-2", grace_s=1)
    assert ended["tree_gone"] is True
    assert ended["exit"]["reason"] == "ended"
    assert family(machine) == set()


@pytest.mark.parametrize(("kind", "runtime"), ON_EACH)
async def test_end_finds_the_tree_of_a_supervisor_that_was_killed(
    lab: Lab, boot_machine: BootMachine, kind: Kind, runtime: str
) -> None:
    machine = boot_machine(kind)
    async with agent_on(lab, machine) as agent:
        await agent.begin("job-g-0-1", FAMILY, runtime)
        wait_until(lambda: len(family(machine)) == 3, "the whole family is up")
        machine.run("pkill", "-KILL", "-x", "supervise")
        ended = await agent.call("end", run_id="job-g-0-1", grace_s=1)
    assert ended["tree_gone"] is True
    assert ended["exit"]["reason"] == "ended-after-supervisor-loss"
    assert family(machine) == set()


@pytest.mark.parametrize(("kind", "runtime"), ON_EACH)
async def test_starting_twice_at_once_starts_once(
    lab: Lab, boot_machine: BootMachine, kind: Kind, runtime: str
) -> None:
    machine = boot_machine(kind)
    async with agent_on(lab, machine) as agent:
        first = await agent.begin("job-d-0-1", "echo ran; sleep 5001", runtime)
        both = await asyncio.gather(*(agent.call("start", run_id="job-d-0-1") for _ in range(3)))
        assert {run["pid"] for run in both} == {first["pid"]}
        assert len(family(machine)) == 1
        await agent.call("end", run_id="job-d-0-1", grace_s=0)
    log = machine.run("cat", "/var/lib/baseload/runs/job-d-0-1/log")
    assert log == "ran\n"


@pytest.mark.parametrize(("kind", "runtime"), ON_EACH)
async def test_after_a_power_cut_the_run_is_lost_not_running(
    lab: Lab, boot_machine: BootMachine, kind: Kind, runtime: str
) -> None:
    machine = boot_machine(kind)
    async with agent_on(lab, machine) as agent:
        await agent.begin("job-e-0-1", "echo before; sleep 5001", runtime)
        boot_id = (await agent.call("inspect"))["hardware"]["boot_id"]
        machine.power_cut()
    machine.boot()
    async with agent_on(lab, machine) as agent:
        assert (await agent.look("job-e-0-1"))["state"] == "lost"
        assert (await agent.call("inspect"))["hardware"]["boot_id"] != boot_id
        ended = await agent.call("end", run_id="job-e-0-1", grace_s=0)
    assert ended["exit"]["reason"] == "ended-after-supervisor-loss"
    assert machine.run("cat", "/var/lib/baseload/runs/job-e-0-1/log") == "before\n"


async def test_the_reboot_verb_restarts_a_systemd_machine(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    first = machine.init_pid
    async with agent_on(lab, machine) as agent:
        boot_id = (await agent.call("inspect"))["hardware"]["boot_id"]
        await agent.call("reboot")
    wait_until(lambda: machine.init_pid not in (None, first), "a new PID 1", limit_s=90)
    machine.wait_for_ssh()
    async with agent_on(lab, machine) as agent:
        assert (await agent.call("inspect"))["hardware"]["boot_id"] != boot_id


async def test_inspection_finds_the_machine_and_its_gpus(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    async with agent_on(lab, machine) as agent:
        assert (await agent.call("inspect"))["hardware"]["gpus"] == []
        uuids = put_gpus(machine, "NVIDIA A100-SXM4-80GB", 2)
        found = (await agent.call("inspect"))["hardware"]
        assert [gpu["uuid"] for gpu in found["gpus"]] == uuids
        assert found["gpus"][0]["memory_mib"] == 81_920
        assert found["hostname"] == machine.name
        assert machine.address in found["addresses"]
        assert {"process", "systemd"} <= set(found["runtimes"])
        break_gpus(machine, "Failed to initialize NVML: Driver/library version mismatch", 18)
        with pytest.raises(AgentRefusedError, match=r"gpu-driver.*Driver/library version mismatch"):
            await agent.call("inspect")


@pytest.mark.parametrize(("kind", "runtime"), ON_EACH)
async def test_a_run_opens_its_own_gpu_and_no_other_one(
    lab: Lab, boot_machine: BootMachine, kind: Kind, runtime: str
) -> None:
    machine = boot_machine(kind)
    put_gpu_devices(machine, ["GPU-other", "GPU-own"])
    opens = "for f in /dev/nvidia*; do (: < $f) && echo $f; done; touch done; sleep 5001"
    run = "/var/lib/baseload/runs/job-h-0-1"
    async with agent_on(lab, machine) as agent:
        prepared = await agent.call("prepare", exclusive=False, authorized_key="", peers=[])
        assert prepared["open_gpus_reason"] is None
        more = {"user": prepared["job_user"], "gpu_uuids": ["GPU-own"]}
        await agent.begin("job-h-0-1", opens, runtime, **more)
        wait_until(lambda: machine.run("find", run, "-name", "done") != "", "its look at /dev")
        shown = machine.run("systemctl", "show", "baseload-job-h-0-1", check=False)
        await agent.call("end", run_id="job-h-0-1", grace_s=0)
    assert machine.run("cat", f"{run}/log").split() == ["/dev/nvidia1", "/dev/nvidiactl"]
    if runtime == "systemd":
        assert "DevicePolicy=closed" in shown
        allowed = [line for line in shown.splitlines() if line.startswith("DeviceAllow=")]
        assert "DeviceAllow=/dev/nvidia1 rw" in allowed
        assert not [line for line in allowed if "nvidia0" in line]


@pytest.mark.parametrize(("kind", "runtime"), ON_EACH)
async def test_a_run_with_packages_has_a_root_of_its_own_and_leaves_no_mount(
    lab: Lab, boot_machine: BootMachine, repository: DebianRepository, kind: Kind, runtime: str
) -> None:
    repository.add("baseload-test-tool", {"/usr/bin/baseload-test-tool": "#!/bin/sh\necho tool\n"})
    machine = boot_machine(kind)
    settings = repository.environment["APT_CONFIG"]
    machine.run("cp", settings, "/etc/apt/apt.conf.d/99-test")
    machine.run("mkdir", "-p", "/var/lib/baseload")
    if kind == "sshd":  # What is an overlay itself can hold no layer.
        async with agent_on(lab, machine) as agent:
            prepared = await agent.call("prepare", exclusive=False, authorized_key="", peers=[])
            assert "onto a disk" in prepared["no_run_root_reason"]
    machine.run("mount", "--bind", "/var/lib/containers", "/var/lib/baseload")
    spec = {"command": "baseload-test-tool && touch done && sleep 5001",
            "environment": {}, "runtime": runtime, "gpu_uuids": [], "grace_s": 1}  # fmt: skip
    run = "/var/lib/baseload/runs/job-layered-0-1"
    async with agent_on(lab, machine) as agent:
        prepared = await agent.call("prepare", exclusive=False, authorized_key="", peers=[])
        assert prepared["no_run_root_reason"] is None
        before = machine.run("cat", "/proc/mounts")
        await agent.call("stage", run_id="job-layered-0-1", apt_packages=["baseload-test-tool"],
                         spec={**spec, "user": prepared["job_user"]})  # fmt: skip
        await agent.call("start", run_id="job-layered-0-1")
        wait_until(lambda: machine.run("find", run, "-name", "done") != "", "the program")
        # Its supervisor may still have to read what it has printed.
        wait_until(lambda: machine.run("cat", f"{run}/log") == "tool\n", "its output")
        await agent.call("end", run_id="job-layered-0-1", grace_s=0)
        await agent.call("clean", run_ids=["job-layered-0-1"])
        assert machine.run("cat", "/proc/mounts") == before
    assert family(machine) == set()
    assert "baseload-test-tool" not in machine.run("dpkg-query", "-W", "-f", "${Package}\n")


@pytest.mark.parametrize("kind", ["sshd", "systemd"])
async def test_exclusive_preparation_lets_nobody_in_but_the_platform_until_it_is_released(
    lab: Lab, boot_machine: BootMachine, kind: Kind
) -> None:
    machine = boot_machine(kind)
    owner: dict[str, object] = {
        "username": "owner",
        "password": "owner-password",
        "client_keys": None,
    }
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    machine.let_in(lab.public_key, stranger.export_public_key().decode())
    async with connect(lab, machine, **owner), connect(lab, machine, client_keys=[stranger]):
        pass
    async with agent_on(lab, machine) as agent:
        for _ in range(2):
            done = await agent.call(
                "prepare", exclusive=True, authorized_key=lab.public_key, peers=[]
            )
            assert done["closed_logins"] is True
        assert done["job_user"] == "baseload-job"
        assert (await agent.call("inspect"))["ok"], "the open session goes on"
    await _refused(lab, machine, owner)
    await _refused(lab, machine, {"client_keys": [stranger]})
    async with agent_on(lab, machine) as agent:
        opened = [(await agent.call("release"))["opened"] for _ in range(2)]
        assert opened[0]
        assert opened[1] == []
    async with connect(lab, machine, **owner), connect(lab, machine, client_keys=[stranger]):
        pass
    assert "baseload" not in machine.run("sh", "-c", "ls -R /etc/ssh; cat /etc/ssh/sshd_config")


async def test_release_lets_the_owner_in_after_the_server_was_restarted_or_a_release_cut_off(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    stranger = asyncssh.generate_private_key("ssh-ed25519")
    machine.let_in(lab.public_key, stranger.export_public_key().decode())
    closing = {"exclusive": True, "authorized_key": lab.public_key, "peers": []}
    async with agent_on(lab, machine) as agent:
        await agent.call("prepare", **closing)
        machine.restart_sshd()  # This session is none of the new server's.
        assert (await agent.call("release"))["opened"]
        await _until(lab, machine, stranger, lets_in=True)
        await agent.call("prepare", **closing)
        await _until(lab, machine, stranger, lets_in=False)
        machine.run("rm", "/etc/ssh/sshd_config.d/00-baseload.conf")  # As far as it had come.
        async with agent_on(lab, machine) as another:
            assert (await another.call("release"))["opened"] == []
        await _until(lab, machine, stranger, lets_in=True)


async def _until(lab: Lab, machine: Machine, key: asyncssh.SSHKey, *, lets_in: bool) -> None:
    """Its server reads its configuration anew in its own time, and refuses all meanwhile."""
    async with asyncio.timeout(20):
        while True:
            try:
                async with connect(lab, machine, client_keys=[key]):
                    found = True
            except asyncssh.PermissionDenied:
                found = False
            except (OSError, asyncssh.Error):
                continue
            if found == lets_in:
                return


async def _refused(lab: Lab, machine: Machine, options: dict[str, object]) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        async with connect(lab, machine, **options):
            pass


async def test_a_shared_machine_keeps_its_owners_logins(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    async with agent_on(lab, machine) as agent:
        done = await agent.call("prepare", exclusive=False, authorized_key=lab.public_key, peers=[])
        assert done["closed_logins"] is False
    async with connect(lab, machine, username="owner", password="owner-password", client_keys=None):
        pass


async def test_preparation_names_the_peers_that_it_cannot_reach(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine, near, far = boot_machine(), boot_machine(), boot_machine()
    far.cut_network()
    peers = [[near.address, 22], [far.address, 22]]
    async with agent_on(lab, machine) as agent:
        done = await agent.call("prepare", exclusive=False, authorized_key="", peers=peers)
    assert done["unreachable_peers"] == [f"{far.address}:22"]


async def test_packages_come_from_the_index_that_the_machine_is_set_to(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine()
    async with agent_on(lab, machine) as agent:
        spec = {"command": "python -c 'import labgreet; print(labgreet.greeting())'",
                "environment": {}, "runtime": "process", "gpu_uuids": [], "grace_s": 1}  # fmt: skip
        await agent.call("stage", run_id="job-f-0-1", code_sha256=None, spec=spec,
                         python_packages=["labgreet"], owned=True)  # fmt: skip
        await agent.call("start", run_id="job-f-0-1")
        assert (await agent.exited("job-f-0-1"))["exit_code"] == 0
    assert machine.run("cat", "/var/lib/baseload/runs/job-f-0-1/log") == "hello from a wheel\n"
