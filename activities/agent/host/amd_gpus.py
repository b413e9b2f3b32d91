"""The AMD GPUs of this machine, as the kernel's driver and AMD's own tool `rocm-smi` show them.

Which GPUs there are, and by which files they are opened, is what the kernel shows below /sys, where
`rocm-smi` reads it too. The tool only adds the names of boards.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
from typing import Any, NamedTuple

CARDS = "/sys/class/drm"
LIBDRM_NAMES = "/usr/share/libdrm/amdgpu.ids"
DRIVER_VERSION = "/sys/module/amdgpu/version"
ROCM_PATH = "/usr/local/bin:/usr/bin:/opt/rocm/bin"
AMD = "0x1002"
OF_ALL = ("kfd",)
"""What each run with a GPU has; a GPU itself is opened by a file of its own."""
SMI_LIMIT_S = 60.0
MIB = 1 << 20
LEAST_MEMORY_BYTES = 1 << 30
"""A GPU with less memory of its own is part of a processor, and computes nothing for jobs."""
INTEGRATED_METRICS = 2
"""From this revision on, the driver's table of measurements is that of a processor's own GPU."""
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""The PCIe generation by the gigatransfers a second of a lane."""
FIGURES = ("gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total")


class Card(NamedTuple):
    """One AMD GPU with memory of its own."""

    uuid: str
    """`GPU-` and the 16 digits that AMD's runtime names it by; `AMD-` and its place on the bus, for
    a GPU that has no number of its own."""
    place: str
    """Its place on the bus, such as `0000:03:00.0`."""
    folder: str
    """The folder below /sys that shows it."""
    render: str
    """The name below /dev of the file that opens it."""

    @property
    def is_numbered(self) -> bool:
        """Whether AMD's runtime can name it, whichever other GPUs a program sees."""
        return self.uuid.startswith("GPU-")


def is_named_so(uuid: str) -> bool:
    """Whether the uuid is one that `cards` gives, of a GPU that may have gone by now."""
    return re.match(r"(GPU-[0-9a-f]{16}|AMD-.+)\Z", uuid) is not None


def cards() -> list[Card]:
    """The AMD GPUs of this machine in the order of the bus, those inside of processors aside."""
    folders = {}
    for path in glob.glob(os.path.join(CARDS, "card[0-9]*")):
        # Not `card0-DP-1`, which is a plug of the card.
        if os.path.basename(path)[4:].isdigit():
            folder = os.path.realpath(os.path.join(path, "device"))
            if _read(folder, "vendor") == AMD and not _is_integrated(folder):
                folders[os.path.basename(folder).lower()] = folder
    numbers = {place: _number_of(folder) for place, folder in folders.items()}
    found = []
    for place, folder in sorted(folders.items()):
        renders = sorted(glob.glob(os.path.join(folder, "drm", "renderD*")))
        own = numbers[place]
        is_unique = own is not None and list(numbers.values()).count(own) == 1
        if renders:
            uuid = "GPU-%s" % own if is_unique else "AMD-%s" % place
            found.append(Card(uuid, place, folder, "dri/" + os.path.basename(renders[0])))
    return found


def by_uuid() -> dict[str, Card]:
    """The AMD GPUs of this machine by their uuid."""
    return {card.uuid: card for card in cards()}


def gpus(first: int) -> list[dict[str, Any]]:
    """The AMD GPUs for the inspection, numbered from `first` on."""
    found = cards()
    names = _series() if found else {}
    return [
        {
            "index": first + number,
            "name": _name(card, names.get(card.place, "")),
            "uuid": card.uuid,
            "memory_mib": _mebibytes(_read(card.folder, "mem_info_vram_total")),
            "pcie_generation": _generation(card.folder),
            "pcie_lanes": _lanes(card.folder),
            "driver_version": _read(DRIVER_VERSION) or None,
        }
        for number, card in enumerate(found)
    ]


def figure_files(found: list[Card]) -> list[str]:
    """The files that show how much these GPUs work; reading one may wait for the GPU."""
    return [os.path.join(card.folder, name) for card in found for name in FIGURES]


def figures(found: list[Card], lines: list[str]) -> dict[str, dict[str, Any]]:
    """The measurements by uuid, out of the lines `FILE:CONTENT` of `figure_files`.

    What the driver of a GPU does not tell is None.
    """
    numbers = {}
    for line in lines:
        path, _, content = line.rpartition(":")
        numbers[path] = int(content) if content.strip().isdigit() else None
    measured = {}
    for card in found:
        percent, used, total = (numbers.get(os.path.join(card.folder, name)) for name in FIGURES)
        measured[card.uuid] = {
            "percent": percent if percent is not None and percent <= 100 else None,
            "memory_used_mib": None if used is None else used // MIB,
            "memory_total_mib": None if total is None else total // MIB,
        }
    return measured


def _is_integrated(folder: str) -> bool:
    """Whether the GPU is part of a processor, whose memory is the machine's."""
    try:
        with open(os.path.join(folder, "gpu_metrics"), "rb") as file:
            header = file.read(4)
        if len(header) == 4 and header[2] >= INTEGRATED_METRICS:
            return True
    except OSError:  # An older driver has no such table.
        pass
    total = _read(folder, "mem_info_vram_total")
    return not total.isdigit() or int(total) < LEAST_MEMORY_BYTES


def _number_of(folder: str) -> str | None:
    number = _read(folder, "unique_id").lower()
    is_given = re.match(r"[0-9a-f]{1,16}\Z", number) is not None and int(number, 16) != 0
    return number.rjust(16, "0") if is_given else None


def _series() -> dict[str, str]:
    """The name of each board by its place on the bus, as `rocm-smi` prints it; empty without it."""
    # The import is slow, and runs start without it.
    import shutil  # noqa: PLC0415

    tool = shutil.which("rocm-smi") or shutil.which("rocm-smi", path=ROCM_PATH)
    if tool is None:
        return {}
    asked = ["--showproductname", "--showuniqueid", "--showmeminfo", "vram", "--showbus", "--json"]
    try:
        done = subprocess.run(
            [tool, *asked],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=SMI_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return series(done.stdout.decode(errors="replace"))


def series(printed: str) -> dict[str, str]:
    """The name of each board by its place on the bus, out of what `rocm-smi` has printed.

    Warnings stand before the document, and the names of fields have changed their case.
    """
    document = next((line for line in printed.splitlines() if line.startswith("{")), "")
    try:
        boards = json.loads(document)
    except ValueError:
        return {}
    found = {}
    for board in boards.values():
        if isinstance(board, dict):
            fields = {str(name).lower(): str(value) for name, value in board.items()}
            if fields.get("pci bus"):
                found[fields["pci bus"].lower()] = fields.get("card series", "").strip()
    return found


def _name(card: Card, of_tool: str) -> str:
    """The name of the board: the first that means one model, else the first that is any.

    Older tools print the name of the chip and in brackets all models that are made of it, and
    boards with an MI250 or an MI250X may call themselves MI200.
    """
    names = [_unwrapped(of_tool), _read(card.folder, "product_name"), _libdrm_name(card)]
    known = [name for name in names if name and not re.match(r"(0x|N/A)", name)]
    exact = [name for name in known if "/" not in name and "MI200" not in name]
    return (exact or known or ["AMD GPU %s" % _read(card.folder, "device")])[0]


def _unwrapped(name: str) -> str:
    brackets = re.search(r"\[(.+)\]", name)
    return brackets.group(1).strip() if brackets else name


def _libdrm_name(card: Card) -> str:
    """The name by the numbers of chip and revision, which libdrm's own table has."""
    wanted = [_hex(_read(card.folder, name)) for name in ("device", "revision")]
    for line in _read(LIBDRM_NAMES).splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and [_hex(each) for each in fields[:2]] == wanted:
            return fields[2]
    return ""


def _hex(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _links(folder: str) -> list[str]:
    """The folders of the GPU and of the bridges above it; the narrowest of them is its link.

    Many boards have bridges of their own, so that the GPU itself always tells a full link.
    """
    found = [folder]
    while os.path.exists(os.path.join(os.path.dirname(found[-1]), "vendor")):
        found.append(os.path.dirname(found[-1]))
    return found


def _generation(folder: str) -> int | None:
    """By the fastest that each part of the link can, because one at rest slows down."""
    found = []
    for link in _links(folder):
        speed = _read(link, "max_link_speed") or _read(link, "current_link_speed")
        number = re.match(r"(\d+(?:\.\d)?) ?GT/s", speed)
        if number:
            found.append(GENERATIONS.get("%.1f" % float(number.group(1))))
    return min((each for each in found if each is not None), default=None)


def _lanes(folder: str) -> int | None:
    widths = [_read(link, "current_link_width") for link in _links(folder)]
    return min((int(width) for width in widths if width.isdigit() and int(width)), default=None)


def _mebibytes(text: str) -> int | None:
    return int(text) // MIB if text.isdigit() else None


def _read(*path: str) -> str:
    """The content of a file; empty where there is none, or the driver does not tell it."""
    try:
        with open(os.path.join(*path), errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
