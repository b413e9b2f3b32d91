"""What a Jetson says of itself, as recorded from boards, and the device files that it has."""

import json
import os
from pathlib import Path

import pytest

from activities.agent.host import inspection, jetson, nvidia_gpus
from activities.site.answers.verbs import Inspection
from tests.lab.jetsons import BOARDS, GIB, Jetson
from workflows.contracts.nodes import Hardware
from workflows.rules.devices.models import device_model_of, refusal_of

SHAPES = {
    "GR3D_FREQ 10%@1300": 10,
    "GR3D_FREQ @[1000,1000,1000]": None,
    "GR3D_FREQ 0%@[1300,1300]": 0,
    "CPU [9%@345,off,off,off] GR3D_FREQ 100%": 100,
    "RAM 1/2MB": None,
}
TEMPERATURES = "AO@38C GPU@-256C PMIC@50C Tboard@40C thermal@39.2C CPU@-3.5C VDD_IN 3200/3200"


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the module reads what a board shows, instead of below /."""
    for name in ("TREE", "RELEASE", "MACHINE_ID", "THERMAL", "DEVICES"):
        monkeypatch.setattr(jetson, name, f"{tmp_path}{getattr(jetson, name)}")
    monkeypatch.setattr(jetson, "LOADS", (f"{tmp_path}/sys/devices/platform/*gpu*/load",))
    monkeypatch.setattr(jetson, "TOOLS_PATH", str(tmp_path / "tools"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}:/usr/bin:/bin")
    (tmp_path / "tools").mkdir()
    return tmp_path


def put_tool(board: Path, name: str, script: str) -> None:
    (board / "tools" / name).write_text(f"#!/bin/sh\n{script}\n")
    (board / "tools" / name).chmod(0o755)


def put_board(board: Path, model: str) -> None:
    """Put what a board of the lab shows where the module reads it."""
    Jetson(model, serial_number="142122207").install(board)
    (board / "sys/firmware/devicetree").mkdir(parents=True)
    (board / "etc/lab-jetson/tree").rename(board / "sys/firmware/devicetree/base")


def hardware(memory_gib: float) -> Hardware:
    """What the platform reads of the board, as strictly as from any node."""
    memory = int(memory_gib * GIB)
    said = {"cpu_count": 8, "memory_bytes": memory, "hostname": "m", "boot_id": "b"}
    said |= {"jetson": jetson.found(), "gpus": jetson.gpus([], memory)}
    return Inspection.model_validate_json(json.dumps({"hardware": said})).found()


@pytest.mark.parametrize("model", BOARDS)
def test_every_board_says_what_it_is(board: Path, model: str) -> None:
    put_board(board, model)
    put_tool(board, "tegrastats", f"while :; do echo '{BOARDS[model].tegrastats}'; sleep 1; done")
    found = hardware(BOARDS[model].memory_gib)
    assert found.jetson is not None
    assert found.jetson.model_text == BOARDS[model].model_text
    assert found.jetson.compatible == BOARDS[model].compatible
    assert found.jetson.jetpack in ("4.6.4", "5.1.2", "6.2")
    assert found.jetson.gpu_load is not None
    assert 30 <= max(found.jetson.temperatures_c.values()) <= 60
    assert min(found.jetson.temperatures_c.values()) >= 30
    assert found.gpus[0].memory_mib == found.memory_bytes >> 20
    if model in ("Nano", "TX2"):
        assert BOARDS[model].model_text in (refusal_of(found) or "")
    else:
        assert device_model_of(found) == f"Jetson {model}"


def test_another_machine_is_no_jetson_whatever_is_installed(board: Path) -> None:
    assert not jetson.is_jetson()
    assert jetson.found() is None
    tree = board / "sys/firmware/devicetree/base"
    tree.mkdir(parents=True)
    (tree / "compatible").write_bytes(b"raspberrypi,4-model-b\0brcm,bcm2711\0")
    (tree / "model").write_bytes(b"Raspberry Pi 4 Model B\0")
    assert jetson.found() is None


def test_the_package_of_jetpack_counts_before_the_release(board: Path) -> None:
    put_board(board, "AGX Xavier")
    assert (jetson.found() or {})["jetpack"] == "5.1.2"
    put_tool(board, "dpkg-query", "printf 5.1.3-b29")
    assert (jetson.found() or {})["jetpack"] == "5.1.3"


def test_without_tools_the_kernel_tells_temperatures_and_load(board: Path) -> None:
    put_board(board, "Orin Nano")
    for number, (name, degrees) in enumerate((("cpu-thermal", 51_500), ("PMIC-Die", 50_000))):
        zone = board / f"sys/class/thermal/thermal_zone{number}"
        zone.mkdir(parents=True)
        (zone / "type").write_text(f"{name}\n")
        (zone / "temp").write_text(f"{degrees}\n")
    load = board / "sys/devices/platform/17000000.gpu/load"
    load.parent.mkdir(parents=True)
    load.write_text("437\n")
    found = jetson.found() or {}
    assert (found["temperatures_c"], found["gpu_load"]) == ({"cpu": 51.5}, 43)
    assert found["power_mode"] is None


@pytest.mark.parametrize(("line", "percent"), SHAPES.items())
def test_the_load_is_read_from_every_shape_of_tegrastats(line: str, percent: int | None) -> None:
    assert jetson.gpu_load(line) == percent


def test_sensors_without_a_temperature_are_left_out() -> None:
    found = jetson.temperatures_c(TEMPERATURES)
    assert found == {"AO": 38.0, "Tboard": 40.0, "thermal": 39.2, "CPU": -3.5}


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref", "R35.4.1"),
        ("# R32 (release), REVISION: 7.4, GCID: 33514132", "R32.7.4"),
        ("# R36 (release), REVISION: 3", "R36.3"),
        ("", None),
        ("# R9999999 (release), REVISION: 1.0", None),
    ],
)
def test_the_release_is_read(text: str, release: str | None) -> None:
    assert jetson.l4t_release(text) == release


@pytest.mark.parametrize(
    ("printed", "mode"),
    [
        ("NV Power Mode: MODE_15W_6CORE\n2\n", "MODE_15W_6CORE"),
        ("NVPM WARN: fan mode is not set!\nNV Power Mode: MAXN\n0\n", "MAXN"),
        ("NVPM ERROR: no such file", None),
    ],
)
def test_the_power_mode_is_read(printed: str, mode: str | None) -> None:
    assert jetson.power_mode(printed) == mode


NEVER_A_LINE = (
    "exec sleep 600",
    "exit 1",
    "printf 'GR3D_FREQ 9%%'; exec sleep 600",
    "exec tr '\\0' x < /dev/zero",
)


@pytest.mark.parametrize("script", NEVER_A_LINE)
def test_tegrastats_is_ended_when_it_says_nothing_in_time(
    board: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    put_board(board, "Orin NX")
    put_tool(board, "tegrastats", f"echo $$ > {board}/pid; {script}")
    monkeypatch.setattr(jetson, "LIMIT_S", 0.3)
    assert (jetson.found() or {})["temperatures_c"] == {}
    pid = int((board / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_gpu_keeps_its_id_and_two_boards_have_two(board: Path) -> None:
    put_board(board, "Orin NX")
    first = jetson.gpu_uuid()
    assert jetson.gpu_uuid() == first
    (board / "sys/firmware/devicetree/base/serial-number").write_bytes(b"142122208\0")
    assert jetson.gpu_uuid() != first
    (board / "sys/firmware/devicetree/base/serial-number").unlink()
    (board / "etc/machine-id").write_text("0c5f\n")
    by_machine = jetson.gpu_uuid()
    (board / "etc/machine-id").write_text("1d6a\n")
    assert jetson.gpu_uuid() not in (first, by_machine)


def test_a_driver_that_fails_or_says_nothing_leaves_the_gpu_of_the_board(
    board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_board(board, "Orin NX")
    monkeypatch.setattr(nvidia_gpus, "GPU_PATH", str(board / "tools"))
    put_tool(board, "nvidia-smi", "echo failed; exit 9")
    (broken,) = inspection.gpus()
    assert (broken["name"], broken["driver_version"]) == ("Orin (nvgpu)", None)
    put_tool(board, "nvidia-smi", "echo '0, Orin (nvgpu), [N/A], [N/A], [N/A], [N/A], 540.4.0'")
    (found,) = inspection.gpus()
    assert found["driver_version"] == "540.4.0"
    assert found["uuid"] == broken["uuid"] == jetson.gpu_uuid()
    assert found["memory_mib"] is not None


def test_device_files_are_read_anew_and_accelerator_and_media_are_kept_apart(board: Path) -> None:
    assert (jetson.device_files(), jetson.media_files()) == ([], [])
    names = ("nvhost-ctrl", "nvmap", "nvgpu/igpu0/ctrl", "dri/renderD128", "video0", "sda")
    for name in names:
        (board / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (board / "dev" / name).touch()
    (board / "dev/dri/by-path").symlink_to("renderD128")
    accelerator = ["dri/renderD128", "nvgpu/igpu0/ctrl", "nvhost-ctrl", "nvmap"]
    assert (jetson.device_files(), jetson.media_files()) == (accelerator, ["video0"])
    (board / "dev/snd").mkdir()
    for name in ("video1", "media0", "v4l-subdev2", "snd/pcmC0D0p"):
        (board / "dev" / name).touch()
    (board / "dev/video0").unlink()
    assert jetson.media_files() == ["media0", "snd/pcmC0D0p", "v4l-subdev2", "video1"]
