"""AMD GPUs, as the kernel and rocm-smi show them, and what runs get that hold them."""

import json
import os
import stat
from pathlib import Path

import pytest

from activities.agent.errors import RefusedError
from activities.agent.host import (
    amd_gpus,
    device_files,
    gpu_work,
    inspection,
    jetson,
    nvidia_gpus,
    run_gpus,
)
from tests.activities.waiting import wait_for
from tests.lab.amd_gpus import CLASSES, AmdGpus

TWO = AmdGpus(has_tool=False)
FIRST, SECOND = TWO.uuids
NVIDIA = "0, NVIDIA A100-SXM4-80GB, GPU-5c3f, 81920, 4, 16, 535.183.01"
PRINTED = {
    "AMD Instinct MI210": "AMD Instinct MI210",
    "Arcturus GL-XL [AMD Instinct MI100]": "AMD Instinct MI100",
    "AMD INSTINCT MI250 (MCM) OAM AC MBA": "AMD INSTINCT MI250 (MCM) OAM AC MBA",
    # What says not which model it is gives way to libdrm's table.
    "Navi 31 [Radeon RX 7900 XT/7900 XTX]": "AMD Radeon PRO W7900 of libdrm",
    "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2": "AMD Radeon PRO W7900 of libdrm",
    "0x740f": "AMD Radeon PRO W7900 of libdrm",
    "N/A": "AMD Radeon PRO W7900 of libdrm",
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that shows two boards and the processor's GPU in this folder, without a tool."""
    TWO.install(tmp_path)
    (tmp_path / "tools").mkdir()
    monkeypatch.setattr(amd_gpus, "CARDS", str(tmp_path / CLASSES))
    monkeypatch.setattr(amd_gpus, "LIBDRM_NAMES", str(tmp_path / "amdgpu.ids"))
    monkeypatch.setattr(amd_gpus, "ROCM_PATH", str(tmp_path / "tools"))
    monkeypatch.setattr(nvidia_gpus, "GPU_PATH", str(tmp_path / "tools"))
    monkeypatch.setattr(device_files, "DEVICES", str(tmp_path / "dev"))
    monkeypatch.setattr(jetson, "TREE", str(tmp_path / "no-tree"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    for name in ("kfd", "dri/renderD128", "dri/renderD129", "dri/renderD130", "dri/card0", "null"):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).touch()
    return tmp_path


def put_tool(machine: Path, name: str, script: str) -> None:
    (machine / "tools" / name).write_text(f"#!/bin/sh\n{script}\n")
    (machine / "tools" / name).chmod(0o755)


def shown(machine: Path, index: int) -> Path:
    """The folder in which the kernel shows one card."""
    return machine / CLASSES / f"card{index}" / "device"


def say(machine: Path, series: str) -> None:
    """Let rocm-smi name the first board so, and print its warnings before."""
    board = {"PCI Bus": "0000:42:00.0", "Card series": series}
    document = json.dumps({"card0": board, "system": {"Driver version": "6.7"}, "card1": {}})
    put_tool(machine, "rocm-smi", f"echo WARNING; echo '{document}'")


def test_boards_are_listed_and_the_processors_own_gpu_is_not(machine: Path) -> None:
    assert inspection.gpus() == [
        {
            "index": index,
            "name": "AMD Radeon PRO W7900",
            "uuid": uuid,
            "memory_mib": 49_136,
            "pcie_generation": 4,
            "pcie_lanes": 8,
            "driver_version": None,
        }
        for index, uuid in enumerate(TWO.uuids)
    ]


def test_a_gpu_that_is_small_or_measured_as_a_processors_is_not_listed(machine: Path) -> None:
    (shown(machine, 0) / "gpu_metrics").unlink()
    assert [card.uuid for card in amd_gpus.cards()] == TWO.uuids
    (shown(machine, 0) / "mem_info_vram_total").write_text(f"{512 << 20}\n")
    (shown(machine, 1) / "gpu_metrics").write_bytes(bytes([8, 1, 3, 0]))
    assert amd_gpus.cards() == []


def test_cards_of_another_maker_and_cards_without_a_render_file_are_not_listed(
    machine: Path,
) -> None:
    (shown(machine, 0) / "vendor").write_text("0x1a03\n")
    (shown(machine, 1) / "drm/renderD129").rmdir()
    assert amd_gpus.cards() == []


@pytest.mark.parametrize(("printed", "name"), PRINTED.items())
def test_the_name_is_the_first_that_means_one_model(machine: Path, printed: str, name: str) -> None:
    (shown(machine, 0) / "product_name").unlink()
    ids = (
        "# List of AMDGPU IDs\n1.0.0\n7448,\tC8,\tother\n7448,\t00,\tAMD Radeon PRO W7900 of libdrm"
    )
    (machine / "amdgpu.ids").write_text(ids)
    say(machine, printed)
    assert amd_gpus.gpus(0)[0]["name"] == name


def test_a_board_that_nobody_names_is_named_by_the_number_of_its_chip(machine: Path) -> None:
    (shown(machine, 0) / "product_name").unlink()
    assert amd_gpus.gpus(0)[0]["name"] == "AMD GPU 0x7448"
    say(machine, "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]")
    assert amd_gpus.gpus(0)[0]["name"] == "Radeon RX 6800/6800 XT / 6900 XT"


@pytest.mark.parametrize("script", ["exit 1", "echo '{'", "echo '[]'", "echo ERROR", "kill $$"])
def test_a_tool_that_fails_changes_nothing(machine: Path, script: str) -> None:
    before = amd_gpus.gpus(0)
    put_tool(machine, "rocm-smi", script)
    assert amd_gpus.gpus(0) == before


def test_boards_without_a_number_of_their_own_are_known_by_their_place(machine: Path) -> None:
    (shown(machine, 0) / "unique_id").write_text("0000000000000000\n")
    assert [card.uuid for card in amd_gpus.cards()] == ["AMD-0000:42:00.0", SECOND]
    (shown(machine, 0) / "unique_id").write_text(f"{SECOND[4:]}\n")
    places = ["AMD-0000:42:00.0", "AMD-0000:44:00.0"]
    assert [card.uuid for card in amd_gpus.cards()] == places
    assert all(map(amd_gpus.is_named_so, [*places, FIRST]))
    assert not amd_gpus.is_named_so("GPU-5c3f1d62-8a4e-4b7d-9f10-0a1b2c3d4e5f")


def test_the_gpus_of_both_makers_are_listed_with_numbers_of_their_own(machine: Path) -> None:
    put_tool(machine, "nvidia-smi", f"echo '{NVIDIA}'")
    found = inspection.gpus()
    assert [(gpu["index"], gpu["uuid"]) for gpu in found] == [
        (0, "GPU-5c3f"), (1, FIRST), (2, SECOND),
    ]  # fmt: skip


def test_a_run_has_the_files_of_its_own_gpus(machine: Path) -> None:
    own = ["kfd", "dri/renderD129"]
    assert device_files.of_its_gpus({"gpu_uuids": [SECOND]}) == own
    both = ["kfd", "dri/renderD128", "dri/renderD129"]
    assert device_files.of_its_gpus({"gpu_uuids": [FIRST, SECOND]}) == both
    assert device_files.of_its_gpus({"gpu_uuids": []}) == []
    assert device_files.of_its_gpus({}) == []
    opened = [os.path.relpath(path, machine / "dev") for path in device_files.of_gpus()]
    assert opened == ["dri/renderD128", "dri/renderD129"]


def test_a_gpu_that_is_not_here_starts_no_run(machine: Path) -> None:
    gone = {"gpu_uuids": ["GPU-00000000000000aa"]}
    for ask in (device_files.of_its_gpus, run_gpus.options):
        with pytest.raises(RefusedError, match=f"GPU-00000000000000aa.*found {FIRST}") as caught:
            ask(gone)
        assert caught.value.code == "gpu-device"
    assert run_gpus.groups(gone) == []


def test_variables_name_the_gpus_of_a_run_to_either_makers_runtime(machine: Path) -> None:
    assert run_gpus.variables({"gpu_uuids": [SECOND, FIRST]}) == {
        "CUDA_VISIBLE_DEVICES": "",
        "ROCR_VISIBLE_DEVICES": f"{SECOND},{FIRST}",
        "HIP_VISIBLE_DEVICES": "0,1",
    }
    assert run_gpus.variables({"gpu_uuids": ["GPU-5c3f"]}) == {
        "CUDA_VISIBLE_DEVICES": "GPU-5c3f",
        "ROCR_VISIBLE_DEVICES": "",
        "HIP_VISIBLE_DEVICES": "-1",
    }
    (shown(machine, 0) / "unique_id").unlink()
    by_place = run_gpus.variables({"gpu_uuids": ["AMD-0000:42:00.0"]})
    assert by_place == {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}
    for card in (machine / CLASSES).glob("card*"):
        card.rename(card.with_name(f"was-{card.name}"))
    assert run_gpus.variables({}) == {"CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device files: run as root")
def test_a_run_is_in_the_groups_that_may_open_its_gpus_and_never_in_that_of_root(
    machine: Path,
) -> None:
    for name, mode, group in (
        ("kfd", 0o660, 109), ("dri/renderD128", 0o660, 0), ("dri/renderD129", 0o666, 44),
    ):  # fmt: skip
        path = machine / "dev" / name
        path.unlink()
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(1, 3))
        path.chmod(mode)
        os.chown(path, 0, group)
    assert run_gpus.groups({"gpu_uuids": [FIRST, SECOND]}) == [109]
    assert run_gpus.groups({"gpu_uuids": ["GPU-5c3f"]}) == []
    assert run_gpus.options({"gpu_uuids": [FIRST]}) == [
        *("--device", f"{machine}/dev/kfd", "--device", f"{machine}/dev/dri/renderD128"),
        *("--group-add", "109"),
    ]


def test_a_container_gets_the_gpus_of_nvidia_by_their_names(machine: Path) -> None:
    assert run_gpus.options({"gpu_uuids": ["GPU-5c3f"]}) == ["--device", "nvidia.com/gpu=GPU-5c3f"]
    assert run_gpus.options({}) == []


def figures() -> dict[str, dict[str, int | None]]:
    """What the drivers of the machine tell, once they all have."""
    work = gpu_work.GpuWork()
    found: list[dict[str, dict[str, int | None]]] = []

    def answered() -> bool:
        answer = work.figures(60.0)
        found.extend([answer] if answer is not None else [])
        return answer is not None

    wait_for(answered, "the drivers")
    return found[-1]


def test_the_work_of_the_gpus_of_both_makers_is_measured(machine: Path) -> None:
    (shown(machine, 1) / "gpu_busy_percent").write_text("87\n")
    own = {"memory_used_mib": 512, "memory_total_mib": 49_136}
    amd = {FIRST: {"percent": 0, **own}, SECOND: {"percent": 87, **own}}
    assert figures() == amd
    put_tool(machine, "nvidia-smi", "echo 'GPU-5c3f, 40, 100, 81920'")
    nvidia = {"percent": 40, "memory_used_mib": 100, "memory_total_mib": 81_920}
    assert figures() == {"GPU-5c3f": nvidia, **amd}


def test_work_that_the_driver_does_not_tell_is_unknown(machine: Path) -> None:
    for name in ("gpu_busy_percent", "mem_info_vram_used"):
        (shown(machine, 0) / name).unlink()
    (shown(machine, 1) / "gpu_busy_percent").write_text("65535\n")
    found = figures()
    nothing = {"percent": None, "memory_used_mib": None, "memory_total_mib": 49_136}
    assert found[FIRST] == nothing
    assert found[SECOND]["percent"] is None


def test_a_jetson_tells_the_load_of_its_gpu(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = machine / "no-tree"
    tree.mkdir()
    (tree / "compatible").write_bytes(b"nvidia,tegra234\0")
    (machine / "load").write_text("437\n")
    monkeypatch.setattr(jetson, "LOADS", (str(machine / "load"),))
    said = {"percent": 43, "memory_used_mib": None, "memory_total_mib": None}
    assert figures() == {jetson.gpu_uuid(): said}
