"""What a Jetson says of itself: model, release, power mode, temperatures, load, device files."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import select
import signal
import subprocess
import time
from typing import Any

TREE = "/sys/firmware/devicetree/base"
"""The device tree, of which /proc/device-tree is another name."""
RELEASE = "/etc/nv_tegra_release"
MACHINE_ID = "/etc/machine-id"
THERMAL = "/sys/class/thermal"
LOADS = ("/sys/devices/gpu.0/load", "/sys/devices/platform/*gpu*/load")
DEVICES = "/dev"
TOOLS_PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_CHARACTERS = 300
MOST_NAMES = 32
LIMIT_S = 10.0
"""The time limit of each of the vendor's tools; `tegrastats` prints a line each second."""
MOST_LINE_BYTES = 1 << 16
NO_SENSOR_C = -256.0
"""What the sensor of a part shows that has no power, such as that of an idle GPU."""
FIXED = "PMIC"
"""The sensor that shows one number whatever the temperature is."""
ACCELERATOR_FILES = (
    *("nvhost-*", "nvmap", "nvgpu/*", "nvgpu/*/*", "dri/*", "nvsciipc", "host1x-fence"),
    *("nvidia[0-9]*", "nvidiactl", "nvidia-modeset", "tegra-soc-hwpm"),
)
MEDIA_FILES = ("video*", "media*", "v4l-subdev*", "snd/*")
JETPACKS = {
    "R32.5.0": "4.5",
    "R32.5.1": "4.5.1",
    "R32.6.1": "4.6",
    "R32.7.1": "4.6.1",
    "R32.7.2": "4.6.2",
    "R32.7.3": "4.6.3",
    "R32.7.4": "4.6.4",
    "R32.7.5": "4.6.5",
    "R32.7.6": "4.6.6",
    "R34.1.0": "5.0",
    "R34.1.1": "5.0.1",
    "R35.1.0": "5.0.2",
    "R35.2.1": "5.1",
    "R35.3.1": "5.1.1",
    "R35.4.1": "5.1.2",
    "R35.5.0": "5.1.3",
    "R35.6.0": "5.1.4",
    "R35.6.1": "5.1.5",
    "R36.2.0": "6.0",
    "R36.3.0": "6.0",
    "R36.4.0": "6.1",
    "R36.4.3": "6.2",
    "R36.4.4": "6.2.1",
}
"""JetPack by the release of Linux for Tegra, as of November 2025.

Source: NVIDIA's archives of JetPack and of Jetson Linux. A release that is not here has no JetPack
until a machine's own package names it.
"""


def is_jetson() -> bool:
    """Whether this machine has a processor of the Tegra family."""
    return any(one.startswith("nvidia,tegra") for one in _compatible())


def found() -> dict[str, Any] | None:
    """What the inspection tells of a Jetson; None: this machine is none."""
    if not is_jetson():
        return None
    release = l4t_release(_text(RELEASE))
    line = _tegrastats()
    return {
        "model_text": _of_tree("model")[:MOST_CHARACTERS],
        "compatible": _compatible(),
        "l4t_release": release,
        "jetpack": _installed_jetpack() or JETPACKS.get(release or ""),
        "power_mode": power_mode(_output("nvpmodel", "-q")),
        "temperatures_c": temperatures_c(line) or _thermal_zones(),
        "gpu_load": gpu_load(line) if line else _load(),
    }


def gpus(of_driver: list[dict[str, Any]], memory_bytes: int) -> list[dict[str, Any]]:
    """The one GPU of a Jetson, whose memory is the machine's.

    of_driver: the GPUs that the driver's tool lists, which many releases do not have.
    """
    driver = of_driver[0] if of_driver else {}
    return [
        {
            "index": 0,
            "name": driver.get("name") or "%s (nvgpu)" % _family(),
            "uuid": gpu_uuid(),
            "memory_mib": memory_bytes >> 20,
            "pcie_generation": None,
            "pcie_lanes": None,
            "driver_version": driver.get("driver_version"),
        }
    ]


def gpu_uuid() -> str:
    """The id of the GPU: always the same, by the serial number or else the id of the machine."""
    # These imports are slow, and runs start without them.
    import hashlib  # noqa: PLC0415

    own = _of_tree("serial-number") or _text(MACHINE_ID).strip()
    digits = hashlib.sha256(("baseload jetson gpu " + own).encode()).hexdigest()
    return "GPU-%s-%s-%s-%s-%s" % (
        *(digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]),
    )


def device_files() -> list[str]:
    """The names below /dev of all files that open the accelerator, those that are there now."""
    return _names(ACCELERATOR_FILES)


def media_files() -> list[str]:
    """The names below /dev of all video, media and sound devices that are plugged in now."""
    return _names(MEDIA_FILES)


def load_files() -> list[str]:
    """The files that show how much the GPU works, in thousandths; empty: there is none."""
    return sorted({path for pattern in LOADS for path in glob.glob(pattern)})


def l4t_release(text: str) -> str | None:
    """`R35.4.1` out of the first line of /etc/nv_tegra_release; None: it is written otherwise."""
    revision = r"R(\d{1,4}) \(release\), REVISION: (\d{1,4}(?:\.\d{1,4}){0,2})(?![\d.])"
    matched = re.search(revision, text[:1000])
    return "R%s.%s" % matched.groups() if matched else None


def power_mode(text: str) -> str | None:
    """The name of the power mode that `nvpmodel -q` prints; None: it prints none."""
    matched = re.search(r"NV Power Mode: *(\S[^\n]*)", text)
    return matched.group(1).strip()[:MOST_CHARACTERS] if matched else None


def temperatures_c(line: str) -> dict[str, float]:
    """The temperatures in a line of `tegrastats`, in degrees Celsius by the name of the sensor."""
    matched = re.findall(r"(\w[\w-]*)@(-?\d{1,4}(?:\.\d+)?)C\b", line)
    return _sensible((name, float(degrees)) for name, degrees in matched)


def gpu_load(line: str) -> int | None:
    """The GPU's load in percent in a line of `tegrastats`; None: it shows none.

    It is `GR3D_FREQ 10%@1300`, `GR3D_FREQ 0%@[1300,1300]`, `GR3D_FREQ 0%` or, without a load,
    `GR3D_FREQ @[1000,1000,1000]`.
    """
    matched = re.search(r"\bGR3D_FREQ (\d{1,3})%", line)
    return min(100, int(matched.group(1))) if matched else None


def _sensible(sensors: Any) -> dict[str, float]:
    kept = [
        (re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:64], degrees)
        for name, degrees in sensors
        if degrees > NO_SENSOR_C and FIXED not in name.upper()
    ]
    return dict(kept[:MOST_NAMES])


def _thermal_zones() -> dict[str, float]:
    """The temperatures as the kernel shows them, which names its sensors `cpu-thermal`."""
    zones = []
    for zone in sorted(glob.glob(os.path.join(THERMAL, "thermal_zone*"))):
        name = _text(os.path.join(zone, "type")).strip()
        thousandths = _text(os.path.join(zone, "temp")).strip()
        if name and re.match(r"-?\d{1,6}\Z", thousandths):
            short = re.sub(r"[-_]?therm(al)?\Z", "", name, flags=re.IGNORECASE)
            zones.append((short.lstrip("-.") or "thermal", int(thousandths) / 1000))
    return _sensible(zones)


def _load() -> int | None:
    for path in load_files():
        thousandths = _text(path).strip()
        if thousandths.isdigit():
            return min(100, int(thousandths) // 10)
    return None


def _tegrastats() -> str:
    """The first line of `tegrastats`, which prints for ever and is ended; empty: it prints none."""
    tool = _tool("tegrastats")
    if tool is None:
        return ""
    try:
        printing = subprocess.Popen(
            [tool, "--interval", "200"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    with printing:
        try:
            return _first_line(printing.stdout.fileno()) if printing.stdout else ""
        finally:
            # With what it has started itself.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(printing.pid, signal.SIGKILL)


def _first_line(stream: int) -> str:
    """The first whole line within the limits; empty: there was none."""
    deadline, read = time.monotonic() + LIMIT_S, b""
    while b"\n" not in read and len(read) < MOST_LINE_BYTES:
        ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
        part = os.read(stream, 4096) if ready else b""
        if not part:
            return ""
        read += part
    line, newline, _ = read.partition(b"\n")
    return line.decode(errors="replace") if newline else ""


def _installed_jetpack() -> str | None:
    """The version of the package of JetPack (`5.1.2-b104`: 5.1.2); None: it is not installed."""
    printed = _output("dpkg-query", "--show", "--showformat=${Version}", "nvidia-jetpack")
    version = re.match(r"\d{1,4}(\.\d{1,4}){0,3}", printed)
    return version.group(0) if version else None


def _output(name: str, *arguments: str) -> str:
    """What a tool prints; empty where it is missing, fails or takes too long."""
    tool = _tool(name)
    if tool is None:
        return ""
    try:
        done = subprocess.run(
            [tool, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _tool(name: str) -> str | None:
    import shutil  # noqa: PLC0415

    return shutil.which(name) or shutil.which(name, path=TOOLS_PATH)


def _family() -> str:
    """The family of the processor, as the driver names its GPU."""
    families = {"tegra234": "Orin", "tegra194": "Xavier", "tegra186": "TX2", "tegra210": "X1"}
    for one in _compatible():
        if one.startswith("nvidia,") and one[len("nvidia,") :] in families:
            return families[one[len("nvidia,") :]]
    return "Tegra"


def _compatible() -> list[str]:
    """The names of board and processor, most special first."""
    names = _text(os.path.join(TREE, "compatible")).split("\0")
    return [name[:MOST_CHARACTERS] for name in names if name][:MOST_NAMES]


def _of_tree(name: str) -> str:
    """A text of the device tree, which ends with a NUL."""
    return _text(os.path.join(TREE, name)).partition("\0")[0].strip()


def _names(patterns: tuple[str, ...]) -> list[str]:
    found = set()
    for pattern in patterns:
        for path in glob.glob(os.path.join(DEVICES, pattern)):
            if not os.path.isdir(path) and not os.path.islink(path):
                found.add(os.path.relpath(path, DEVICES))
    return sorted(found)


def _text(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read(MOST_LINE_BYTES)
    except OSError:
        return ""
