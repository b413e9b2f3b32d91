"""What a machine runs when it starts: by a shell, on a machine that is played."""

import subprocess
from pathlib import Path

import pytest

from activities.providers.gcp.startup import containers_script, startup_script
from workflows.contracts.machines import MachineOffer, MachineSpec

OFFER = MachineOffer(machine_type="e2-standard-2", microcredits_per_hour=1)
KEY = "ssh-ed25519 AAAA platform"
APT = """echo "apt-get $*" >> calls
case "$*" in *install*)
  for name in "$@"; do
    case "$name" in podman|nvidia-container-toolkit) : ;; *) continue ;; esac
    program=$name
    [ "$name" = podman ] || program=nvidia-ctk
    printf '#!/bin/sh\\necho "%s $*" >> calls\\n' "$program" > "bin/$program"
    chmod +x "bin/$program"
  done
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """With a shell, apt-get, and little else."""
    (tmp_path / "bin").mkdir()
    put(tmp_path, "apt-get", APT)
    put(tmp_path, "sleep", "")
    for name in ("seq", "chmod"):
        found = Path("/usr/bin") / name
        (tmp_path / "bin" / name).symlink_to(found)
    return tmp_path


def put(machine: Path, name: str, text: str) -> None:
    program = machine / "bin" / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


def started(machine: Path, gpu_count: int) -> list[str]:
    """What it has run of what counts, once its script is done."""
    (machine / "calls").write_text("")
    path = str(machine / "bin")
    subprocess.run(
        ["/bin/sh", "-c", containers_script(gpu_count)],
        cwd=machine,
        env={"PATH": path},
        check=False,
    )
    calls = (machine / "calls").read_text().splitlines()
    return [call.replace("-o DPkg::Lock::Timeout=600 ", "") for call in calls]


INSTALLED = ["apt-get update -q", "apt-get install -y -q podman"]


def test_podman_is_installed_once(machine: Path) -> None:
    assert started(machine, 0) == INSTALLED
    assert started(machine, 0) == []


def test_whoever_finds_podman_finds_the_gpus_of_containers(machine: Path) -> None:
    put(machine, "nvidia-smi", "")
    generate = "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    toolkit = ["apt-get update -q", "apt-get install -y -q nvidia-container-toolkit"]
    assert started(machine, 1) == [*toolkit, generate, *INSTALLED]
    assert started(machine, 1) == [generate]


def test_without_the_gpus_names_there_is_no_podman(machine: Path) -> None:
    put(machine, "nvidia-smi", "")
    put(machine, "nvidia-ctk", "exit 1")
    assert started(machine, 1) == []
    assert not (machine / "bin/podman").exists()


def test_a_mirror_that_fails_is_asked_again(machine: Path) -> None:
    put(machine, "apt-get", f"[ -e again ] || {{ : > again; exit 100; }}\n{APT}")
    assert started(machine, 0) == INSTALLED


def test_a_machine_that_is_to_run_no_containers_installs_nothing() -> None:
    plain = startup_script(OFFER, MachineSpec(lifetime_s=60), KEY)
    with_podman = startup_script(OFFER, MachineSpec(lifetime_s=60, containers=True), KEY)
    assert KEY in plain
    assert "apt-get" not in plain
    assert with_podman == plain + containers_script(0)
