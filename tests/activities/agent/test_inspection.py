"""What the agent says of the machine that it is on, and how it prepares it."""

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from activities.agent.host import inspection, processes
from activities.transport.agent_archive import agent_archive
from tests.activities.agent.agent_process import LocalAgent, Refused

SMI = (
    "0, NVIDIA A100-SXM4-80GB, GPU-5c3f1d62-8a4e-4b7d-9f10-0a1b2c3d4e5f, 81920, 4, 16, 535.183.01\n"
    "1, Orin (nvgpu), GPU-1, [N/A], [Not Supported], [N/A], [N/A]\n"
)


def put_smi(agent: LocalAgent, folder: Path, output: str, status: int = 0) -> None:
    """A double of the driver's tool, which cannot be had without a GPU."""
    folder.mkdir()
    (folder / "output").write_text(output)
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {folder}/output\nexit {status}\n")
    tool.chmod(0o755)
    agent.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_this_machine_is_found_as_it_is(agent: LocalAgent) -> None:
    found = agent.call("inspect")["hardware"]
    assert found["cpu_count"] == os.cpu_count()
    assert found["core_count"] is None or 1 <= found["core_count"] <= found["cpu_count"]
    assert found["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found["hostname"] == socket.gethostname()
    assert found["kernel"] == platform.release()
    assert found["is_root"] is (os.geteuid() == 0)
    assert found["boot_id"] == processes.boot_id()
    assert found["python_version"] == platform.python_version()
    assert "process" in found["runtimes"]
    assert found["free_disk_bytes"] > 0


def put_cpu(folder: Path, number: int, package: int, core: int) -> None:
    topology = folder / f"cpu{number}" / "topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text(f"{package}\n")
    (topology / "core_id").write_text(f"{core}\n")


def test_cores_are_counted_and_not_their_threads(tmp_path: Path) -> None:
    assert inspection.core_count(str(tmp_path)) is None
    for number in range(16):
        put_cpu(tmp_path, number, package=number % 2, core=number // 2 % 4)
    (tmp_path / "cpufreq").mkdir()
    assert inspection.core_count(str(tmp_path)) == 8


def test_gpus_are_what_the_driver_says(agent: LocalAgent, tmp_path: Path) -> None:
    put_smi(agent, tmp_path / "bin", SMI)
    first, second = agent.call("inspect")["hardware"]["gpus"]
    assert first == {
        "index": 0,
        "name": "NVIDIA A100-SXM4-80GB",
        "uuid": "GPU-5c3f1d62-8a4e-4b7d-9f10-0a1b2c3d4e5f",
        "memory_mib": 81920,
        "pcie_generation": 4,
        "pcie_lanes": 16,
        "driver_version": "535.183.01",
    }
    assert [second[key] for key in ("memory_mib", "pcie_lanes", "driver_version")] == [None] * 3


def test_a_broken_driver_is_an_error_and_not_a_machine_without_gpus(
    agent: LocalAgent, tmp_path: Path
) -> None:
    words = "Failed to initialize NVML: Driver/library version mismatch"
    put_smi(agent, tmp_path / "bin", words, status=18)
    with pytest.raises(Refused, match=words) as caught:
        agent.call("inspect")
    assert caught.value.code == "gpu-driver"


def test_a_lost_gpu_is_an_error(agent: LocalAgent, tmp_path: Path) -> None:
    words = "Unable to determine the device handle for GPU 0000:09:00.0: Unknown Error"
    put_smi(agent, tmp_path / "bin", words)
    with pytest.raises(Refused, match="Unable to determine") as caught:
        agent.call("inspect")
    assert caught.value.code == "gpu-driver"


@pytest.mark.parametrize(
    ("rota", "size"), [("true", "1000"), ("false", "1000"), ('"1"', '"1000"'), ('"0"', '"1000"')]
)
def test_disks_are_read_from_old_and_new_lsblk(rota: str, size: str) -> None:
    device = f'{{"name": "sda", "rota": {rota}, "tran": "sata", "size": {size}, "type": "disk"}}'
    loop = '{"name": "loop0", "rota": false, "tran": null, "size": 5, "type": "loop"}'
    found = inspection.disks(f'{{"blockdevices": [{device}, {loop}]}}')
    assert found == [
        {
            "name": "sda",
            "size_bytes": 1000,
            "rotational": rota in ("true", '"1"'),
            "transport": "sata",
        }
    ]


def put_card(folder: Path, name: str, speed: str, *, has_device: bool = True) -> None:
    """An interface as the kernel shows it; one without a link refuses to say its speed."""
    (folder / name).mkdir(parents=True)
    (folder / name / "speed").write_text(speed)
    if has_device:
        (folder / name / "device").symlink_to("/sys")


def test_the_network_is_as_fast_as_its_fastest_card_and_not_as_a_bridge_says(
    tmp_path: Path,
) -> None:
    put_card(tmp_path, "veth0", "10000", has_device=False)
    put_card(tmp_path, "br0", "100000", has_device=False)
    assert inspection.network_mbps(str(tmp_path)) is None
    put_card(tmp_path, "eth0", "1000\n")
    put_card(tmp_path, "eth1", "2500\n")
    put_card(tmp_path, "eth2", "-1\n")
    (tmp_path / "wlan0/device").mkdir(parents=True)
    assert inspection.network_mbps(str(tmp_path)) == 2500


@pytest.mark.parametrize(
    ("files", "is_2"),
    [
        ({}, False),
        ({"sys/class/tpm/tpm0/tpm_version_major": "1\n", "dev/tpm0": ""}, False),
        ({"sys/class/tpm/tpm0/tpm_version_major": "2\n", "dev/tpm0": ""}, True),
        ({"dev/tpm0": ""}, False),
        ({"dev/tpm0": "", "dev/tpmrm0": ""}, True),
    ],
    ids=["none", "1.2", "2.0", "of a kernel that names no version", "2.0 of an old kernel"],
)
def test_a_tpm_counts_where_it_is_of_version_2(
    tmp_path: Path, files: dict[str, str], *, is_2: bool
) -> None:
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert inspection.has_tpm_2(str(tmp_path)) is is_2


def test_preparing_makes_the_folders_and_doing_it_again_changes_nothing(
    agent: LocalAgent,
) -> None:
    first = agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    second = agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    assert (first["closed_logins"], second["folders_made"]) == (False, [])
    for name in ("code", "packages", "runs"):
        assert (agent.root / name).stat().st_mode & 0o777 == 0o711


def test_peers_that_cannot_be_reached_are_named(agent: LocalAgent) -> None:
    with socket.socket() as open_one, socket.socket() as closed_one:
        open_one.bind(("127.0.0.1", 0))
        open_one.listen()
        closed_one.bind(("127.0.0.1", 0))
        open_port, closed_port = open_one.getsockname()[1], closed_one.getsockname()[1]
        peers = [["127.0.0.1", open_port], ["127.0.0.1", closed_port]]
        answer = agent.call("prepare", exclusive=False, authorized_key="", peers=peers)
    assert answer["unreachable_peers"] == [f"127.0.0.1:{closed_port}"]


def test_the_archive_is_the_same_for_the_same_sources() -> None:
    code = "from activities.transport.agent_archive import agent_archive as a; print(a().sha256)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == agent_archive().sha256
    assert agent_archive().name == f"agent-{agent_archive().sha256[:12]}.pyz"


def test_the_agent_runs_on_the_oldest_python_that_is_promised(agent: LocalAgent) -> None:
    """Every module is compiled by the grammar of 3.8; nothing newer is imported at the top."""
    import ast

    for source in Path("activities/agent").rglob("*.py"):
        tree = ast.parse(source.read_text(), feature_version=(3, 8))
        names = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert names <= set(sys.stdlib_module_names), source
        first = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        if tree.body:
            assert first[0].module == "__future__", source


def test_a_container_has_the_memory_that_it_may_use(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    of_machine = 64 << 30
    for text, found in (("max", of_machine), ("9223372036854771712", of_machine), ("1024", 1024)):
        limit.write_text(f"{text}\n")
        assert inspection.container_memory(of_machine, (str(limit), "/nowhere")) == found


def test_a_machine_tries_its_speeds_only_when_asked(agent: LocalAgent) -> None:
    hardware = agent.call("inspect")["hardware"]
    assert (hardware["disk_mb_per_s"], hardware["cpu_mb_per_s"]) == (None, None)
    hardware = agent.call("inspect", tries_speeds=True)["hardware"]
    assert hardware["disk_mb_per_s"] > 0
    assert hardware["cpu_mb_per_s"] > 0
