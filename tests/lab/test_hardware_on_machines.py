"""Jetsons and AMD GPUs on whole machines: what the agent finds, and what runs may open of it."""

from __future__ import annotations

import json

import pytest

from activities.site.answers.verbs import Inspection
from tests.activities.agent.podman import CONTAINERS_CONF, IMAGE, root_file_system
from tests.lab.agent import agent_on
from tests.lab.amd_gpus import RENDER_GROUP, AmdGpus
from tests.lab.fixtures import BootMachine
from tests.lab.jetsons import Jetson
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from workflows.contracts.nodes import Hardware
from workflows.rules.devices.models import DeviceModel, device_model_of

RUNS = "/var/lib/baseload/runs"
OPENS = (
    "for f in /dev/kfd /dev/dri/* /dev/nvhost-* /dev/nvmap /dev/nvgpu/*/* /dev/video* /dev/rtc*; "
    "do (: < $f) 2>/dev/null && echo $f; done; "
    "echo cuda=$CUDA_VISIBLE_DEVICES rocr=$ROCR_VISIBLE_DEVICES hip=$HIP_VISIBLE_DEVICES"
)


def read(answer: dict[str, object]) -> Hardware:
    """An agent's answer, as strictly as the platform reads it."""
    return Inspection.model_validate_json(json.dumps(answer)).found()


async def test_a_jetson_says_what_it_is_again_after_a_power_cut(
    lab: Lab, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd", Jetson("Orin NX"))
    async with agent_on(lab, machine) as agent:
        found = read(await agent.call("inspect"))
        prepared = await agent.call("prepare", exclusive=False, authorized_key="", peers=[])
        more = {"user": prepared["job_user"], "gpu_uuids": [found.gpus[0].uuid]}
        await agent.begin("job-jetson-0-1", OPENS, "systemd", **more)
        await agent.exited("job-jetson-0-1")
    assert device_model_of(found) is DeviceModel.ORIN_NX
    assert found.jetson is not None
    assert (found.jetson.l4t_release, found.jetson.jetpack) == ("R36.4.3", "6.2")
    assert (found.jetson.power_mode, found.jetson.gpu_load) == ("MAXN_SUPER", 14)
    assert found.jetson.temperatures_c["cpu"] == 52.968
    assert (found.gpus[0].name, found.gpus[0].memory_mib) == ("Orin (nvgpu)", 15667)
    assert [line for line in machine.command_lines() if "tegrastats" in line] == []
    opened = machine.run("cat", f"{RUNS}/job-jetson-0-1/log").splitlines()
    assert {"/dev/nvhost-ctrl", "/dev/nvmap", "/dev/nvgpu/igpu0/ctrl"} <= set(opened)
    assert not {"/dev/video0", "/dev/rtc0"} & set(opened)
    assert opened[-1] == "cuda=0 rocr= hip="

    machine.power_cut()
    machine.boot()
    async with agent_on(lab, machine) as agent:
        again = read(await agent.call("inspect"))
    assert (again.jetson, again.gpus) == (found.jetson, found.gpus)


@pytest.mark.parametrize("runtime", ["process", "systemd", "podman"])
async def test_a_run_opens_its_own_amd_gpu_and_no_other_one(
    lab: Lab, boot_machine: BootMachine, runtime: str
) -> None:
    gpus = AmdGpus()
    machine = boot_machine("systemd", gpus)
    own = gpus.uuids[1]
    async with agent_on(lab, machine) as agent:
        found = read(await agent.call("inspect"))
        prepared = await agent.call("prepare", exclusive=False, authorized_key="", peers=[])
        assert prepared["open_gpus_reason"] is None
        more: dict[str, object] = {"user": prepared["job_user"], "gpu_uuids": [own]}
        command = f"{OPENS}; id -G"
        if runtime == "podman":
            put_image(machine)
            spec = {"command": command, "runtime": runtime, "grace_s": 1, **more}
            await agent.call("stage", run_id="job-amd-own-0-1", owned=True, image=IMAGE, spec=spec)
            await agent.call("start", run_id="job-amd-own-0-1")
        else:
            await agent.begin("job-amd-own-0-1", command, runtime, **more)
        await agent.exited("job-amd-own-0-1")
        log = machine.run("cat", f"{RUNS}/job-amd-own-0-1/log").splitlines()
        if runtime == "process":
            await agent.begin("job-amd-cpu-0-1", OPENS, user=prepared["job_user"])
            await agent.exited("job-amd-cpu-0-1")
            without = machine.run("cat", f"{RUNS}/job-amd-cpu-0-1/log").splitlines()
            assert without == ["cuda= rocr= hip=-1"]
    assert [gpu.uuid for gpu in found.gpus] == gpus.uuids
    assert {gpu.name for gpu in found.gpus} == {"AMD Radeon PRO W7900"}
    *lines, variables, groups = log
    opened = [line for line in lines if line.startswith("/dev/")]  # Podman warns here of cgroups.
    assert opened == ["/dev/kfd", gpus.render(1)]
    assert variables == f"cuda= rocr={own} hip=0"
    assert str(RENDER_GROUP) in groups.split()


CDI = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvhost-ctrl-gpu"}]}}
    ],
}
"""As NVIDIA's toolkit describes the accelerator of a Jetson to podman, of one file here."""


@pytest.mark.parametrize("is_described", [False, True], ids=["by_its_files", "by_cdi"])
async def test_a_container_opens_the_accelerator_of_its_jetson(
    lab: Lab, boot_machine: BootMachine, is_described: bool
) -> None:
    machine = boot_machine("systemd", Jetson("Orin NX"))
    put_image(machine)
    if is_described:
        (machine.disk / "etc/cdi").mkdir()
        (machine.disk / "etc/cdi/nvidia.json").write_text(json.dumps(CDI))
    async with agent_on(lab, machine) as agent:
        found = read(await agent.call("inspect"))
        prepared = await agent.call("prepare", exclusive=False, authorized_key="", peers=[])
        more = {"user": prepared["job_user"], "gpu_uuids": [found.gpus[0].uuid]}
        spec = {"command": OPENS, "runtime": "podman", "grace_s": 1, **more}
        await agent.call("stage", run_id="job-jetson-0-1", owned=True, image=IMAGE, spec=spec)
        await agent.call("start", run_id="job-jetson-0-1")
        await agent.exited("job-jetson-0-1")
    log = machine.run("cat", f"{RUNS}/job-jetson-0-1/log").splitlines()
    opened = {line for line in log if line.startswith("/dev/")}
    assert "/dev/nvhost-ctrl-gpu" in opened
    assert ("/dev/nvmap" in opened) is not is_described
    assert not {"/dev/video0", "/dev/rtc0"} & opened
    assert log[-1] == "cuda=0 rocr= hip="


def put_image(machine: Machine) -> None:
    """Put an image and settings for podman onto the machine."""
    (machine.disk / "etc/containers").mkdir(exist_ok=True)
    conf = machine.disk / "etc/containers/containers.conf"
    conf.write_text(CONTAINERS_CONF.format(folder="/var/lib/baseload-podman"))
    (machine.disk / "tmp/root.tar").write_bytes(root_file_system())
    machine.run("podman", "import", "/tmp/root.tar", IMAGE)
