"""The GPUs of runs: each opens the device files that it was allocated, and no run any other."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.agent.debian import DebianRepository, repository
from tests.activities.waiting import wait_for

__all__ = ["repository"]

pytestmark = [
    pytest.mark.usefixtures("staged_before"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a /dev: run as root"),
]
FIRST, SECOND, IDLE = "GPU-1f", "GPU-2e", "GPU-3d"
UNTOLD = "GPU-????????-????-????-????-????????????"
"""As the driver names a GPU that no program has used since the machine started."""
# The minor numbers have another order than the places on the bus, as on machines with bridges.
GPUS = {"0000:17:00.0": (FIRST, 2), "0000:65:00.0": (SECOND, 0), "0000:ca:00.0": (UNTOLD, 1)}
MACHINE = """
set -e
mkdir "$1/dev"
mount -t tmpfs tmpfs "$1/dev"
for name in null zero full random urandom tty ptmx fd stdin stdout stderr; do
  cp -a /dev/$name "$1/dev"
done
mkdir "$1/dev/pts" "$1/dev/shm"
mount --rbind /dev/pts "$1/dev/pts"
mount --rbind /dev/shm "$1/dev/shm"
for name in nvidia0 nvidia1 nvidia2 nvidiactl nvidia-uvm other; do
  mknod -m 666 "$1/dev/$name" c 1 3
done
mount --rbind "$1/dev" /dev
mount --rbind "$1/driver" /proc/driver
touch "$1/ready"
exec sleep 3600
"""
# Starts the rest of its arguments, as systemd does, and keeps what it was asked for.
SYSTEMD_RUN = """#!/bin/sh
printf '%%s\\n' "$@" > %s
while :; do
  case $1 in --unit) shift 2 ;; -*) shift ;; *) break ;; esac
done
setsid "$@" < /dev/null > /dev/null 2>&1 &
"""
OPENED = "for f in /dev/nvidia* /dev/other; do (: < $f) 2>/dev/null && echo ${f#/dev/}; done; "
NVIDIA_SMI = f"""#!/bin/sh
echo "2, {IDLE}, 00000000:CA:00.0"
"""


class WithGpus(LocalAgent):
    """An agent whose calls and runs see a machine with three GPUs."""

    machine = 0

    def command(self, verb: str) -> list[str]:
        plain = super().command(verb)
        inside = ["nsenter", f"--mount=/proc/{self.machine}/ns/mnt", *plain]
        return inside if self.machine else plain

    def opened(self, run_id: str, command: str = "true", **more: object) -> list[str]:
        """The device files that a run can open."""
        self.run(run_id, OPENED + command, user="baseload-job", **more)
        self.exit_of(run_id)
        return self.path(run_id, "log").read_text().split()

    def devices(self) -> dict[str, tuple[int, int, int]]:
        """Mode, owner and group of all in the machine's own /dev."""
        found = Path(f"/proc/{self.machine}/root/dev")
        named = {path.name: path.lstat() for path in found.iterdir()}
        return {name: (one.st_mode, one.st_uid, one.st_gid) for name, one in named.items()}


@pytest.fixture
def with_gpus(agent: LocalAgent, tmp_path: Path) -> Iterator[WithGpus]:
    for place, (uuid, minor) in GPUS.items():
        folder = tmp_path / "driver" / "nvidia" / "gpus" / place
        folder.mkdir(parents=True)
        words = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(words)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(NVIDIA_SMI)
    (tools / "nvidia-smi").chmod(0o755)
    machine = subprocess.Popen(
        ["unshare", "--mount", "--propagation=private", "sh", "-c", MACHINE, "sh", str(tmp_path)]
    )
    wait_for((tmp_path / "ready").exists, "the machine")
    agent.__class__ = WithGpus
    assert isinstance(agent, WithGpus)
    agent.machine = machine.pid
    agent.environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    assert agent.call("prepare", peers=[])["open_gpus_reason"] is None
    yield agent
    agent.end_all()
    agent.machine = 0  # What the fixtures below still call has no machine to enter any more.
    machine.kill()
    machine.wait()


def test_a_run_opens_the_gpus_that_it_was_allocated_and_a_cpu_run_none(
    with_gpus: WithGpus,
) -> None:
    before = with_gpus.devices()
    shared = ["nvidia-uvm", "nvidiactl"]
    terminal = "python3 -c 'import pty; pty.openpty()' && echo terminal"
    assert with_gpus.opened("job-without-gpu-0-1", terminal) == ["terminal"]
    first = with_gpus.opened("job-first-gpu-0-1", gpu_uuids=[FIRST])
    assert sorted(first) == sorted(["nvidia2", *shared])
    both = with_gpus.opened("job-two-gpus-0-1", gpu_uuids=[SECOND, IDLE])
    assert sorted(both) == sorted(["nvidia0", "nvidia1", *shared])
    assert with_gpus.devices() == before


def test_no_run_opens_more_after_the_loss_of_a_supervisor(with_gpus: WithGpus) -> None:
    before = with_gpus.devices()
    held = "job-held-0-1"
    again = "touch ready; while ! [ -e go ]; do sleep 0.02; done; "
    noted = f"({OPENED}) > part; mv part again; sleep 600"  # Without a supervisor it has no log.
    with_gpus.run(held, again + noted, user="baseload-job", gpu_uuids=[FIRST])
    wait_for(with_gpus.path(held, "work/ready").exists, "the command")
    os.kill(with_gpus.document(held, "process.json")["supervisor_pid"], signal.SIGKILL)
    wait_for(lambda: with_gpus.look(held)["state"] == "lost", "the loss to show")
    assert with_gpus.opened("job-no-gpu-0-1") == []
    assert "nvidia2" not in with_gpus.opened("job-gpu-0-1", gpu_uuids=[SECOND])
    with_gpus.path(held, "work/go").touch()
    noted_at = with_gpus.path(held, "work/again")
    wait_for(noted_at.exists, "its GPUs")
    assert sorted(noted_at.read_text().split()) == ["nvidia-uvm", "nvidia2", "nvidiactl"]
    with_gpus.call("end", run_id=held, grace_s=0)
    assert "nvidia2" in with_gpus.opened("job-next-0-1", gpu_uuids=[FIRST])
    assert with_gpus.devices() == before


def test_a_gpu_that_the_driver_has_no_device_of_starts_no_run(with_gpus: WithGpus) -> None:
    with pytest.raises(Refused, match="GPU-gone") as caught:
        with_gpus.run("job-gone-gpu-0-1", "true", user="baseload-job", gpu_uuids=["GPU-gone"])
    assert caught.value.code == "gpu-device"
    assert not with_gpus.path("job-gone-gpu-0-1", "log").exists()


def test_a_machine_that_can_keep_no_gpus_apart_says_so_and_runs_its_owners_jobs(
    with_gpus: WithGpus,
) -> None:
    weak = WithGpus.command

    def without_mounts(verb: str) -> list[str]:
        inside = weak(with_gpus, verb)
        at = inside.index(with_gpus.python)
        return [*inside[:at], "setpriv", "--bounding-set=-sys_admin", *inside[at:]]

    with_gpus.command = without_mounts  # type: ignore[method-assign]
    refused = "job-early-0-1"
    with_gpus.run(refused, "true", user="baseload-job")
    assert with_gpus.exit_of(refused)["exit_code"] == 126
    assert "unshare" in with_gpus.path(refused, "log").read_text()
    reason = with_gpus.call("prepare", peers=[])["open_gpus_reason"]
    assert "Operation not permitted" in reason
    assert "nvidia0" in with_gpus.opened("job-own-0-1")


def test_systemd_lets_a_unit_open_the_devices_of_its_run_alone(
    with_gpus: WithGpus, tmp_path: Path
) -> None:
    """What systemd is asked for; that it takes this is shown on whole machines."""
    tool = tmp_path / "tools" / "systemd-run"
    tool.write_text(SYSTEMD_RUN % (tmp_path / "asked"))
    tool.chmod(0o755)
    found = with_gpus.opened("job-unit-0-1", gpu_uuids=[FIRST], runtime="systemd")
    assert "nvidia0" not in found
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "--property=TasksMax=32768" in asked
    assert "--property=DevicePolicy=closed" in asked
    allowed = {line.rpartition("=")[2] for line in asked if "DeviceAllow" in line}
    gpus = {f"/dev/{name} rw" for name in ("nvidia2", "nvidia-uvm", "nvidiactl")}
    assert {line for line in allowed if "nvidia" in line} == gpus
    assert "/dev/other rw" not in allowed


def test_a_run_with_a_root_of_its_own_opens_its_gpu_and_no_other_one(
    with_gpus: WithGpus, repository: DebianRepository
) -> None:
    repository.add("baseload-test-tool", {"/usr/bin/baseload-test-tool": "#!/bin/sh\necho tool\n"})
    assert with_gpus.environment is not None
    with_gpus.environment = {**repository.environment, **with_gpus.environment}
    more = {"user": "baseload-job", "gpu_uuids": [FIRST]}
    asked = spec(f"{OPENED} ls /proc/driver/nvidia/gpus | wc -l; baseload-test-tool", **more)
    with_gpus.call("stage", run_id="job-tool-0-1", apt_packages=["baseload-test-tool"], spec=asked)
    with_gpus.call("start", run_id="job-tool-0-1")
    assert with_gpus.exit_of("job-tool-0-1")["exit_code"] == 0
    found = with_gpus.path("job-tool-0-1", "log").read_text().split()
    assert sorted(found) == sorted(["nvidia2", "nvidia-uvm", "nvidiactl", "3", "tool"])
