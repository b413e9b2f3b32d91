"""The models of devices: which Jetson a machine is, by what it says of itself."""

import re
from enum import StrEnum

from workflows.contracts.nodes import Hardware, Jetson

GIB = 1024**3
NX_LIMIT_BYTES = 17 * GIB
"""More memory than any NX has: its largest has 16 GB."""
NANO_LIMIT_BYTES = 9 * GIB
"""More memory than any Orin Nano has: its largest has 8 GB."""
SMALL_NANO_LIMIT_BYTES = 5 * GIB
"""More memory than the small Orin Nano has; no other Orin has so little."""


class DeviceModel(StrEnum):
    """The models of Jetson that can be devices."""

    AGX_XAVIER = "Jetson AGX Xavier"
    XAVIER_NX = "Jetson Xavier NX"
    AGX_ORIN = "Jetson AGX Orin"
    ORIN_NX = "Jetson Orin NX"
    ORIN_NANO = "Jetson Orin Nano"


_MODULES = (
    (re.compile(r"\bp3767-000[01]\b"), DeviceModel.ORIN_NX),
    (re.compile(r"\bp3767-000[345]\b"), DeviceModel.ORIN_NANO),
    (re.compile(r"\bp3701-"), DeviceModel.AGX_ORIN),
    (re.compile(r"\bp3668-"), DeviceModel.XAVIER_NX),
    (re.compile(r"\b(p2888|p2972)-"), DeviceModel.AGX_XAVIER),
)
"""The models by the part number of the module, or of the one board that takes only it.

Source: the device trees of NVIDIA's boards in Linux and in Jetson Linux.
"""
_FAMILIES = {"tegra194": "XAVIER", "tegra234": "ORIN"}
_BY_WORDS = {
    ("XAVIER", "AGX"): DeviceModel.AGX_XAVIER,
    ("XAVIER", "NX"): DeviceModel.XAVIER_NX,
    ("ORIN", "AGX"): DeviceModel.AGX_ORIN,
    ("ORIN", "NX"): DeviceModel.ORIN_NX,
    ("ORIN", "NANO"): DeviceModel.ORIN_NANO,
}


def device_model_of(hardware: Hardware) -> DeviceModel | None:
    """The model of a machine that can be a device; None: it is another machine.

    The part number of the module counts first, because makers of boards and tools that flash them
    write what they like as the name of a board; then the family of the processor with the words of
    that name, and the memory where words are missing or cannot be true.
    """
    jetson = hardware.jetson
    if jetson is None or "IGX" in jetson.model_text.upper():
        return None
    for name in jetson.compatible:
        for module, model in _MODULES:
            if module.search(name):
                return model
    return _by_words(jetson, hardware.memory_bytes)


def refusal_of(hardware: Hardware) -> str | None:
    """Why a machine cannot be a device, with what was found; None: it can be one."""
    if device_model_of(hardware) is not None:
        return None
    memory = f"{hardware.memory_bytes / GIB:.1f} GiB of memory"
    if hardware.jetson is None:
        found = f"no Jetson, but {hardware.cpu_model or 'an unknown processor'} with {memory}"
    else:
        named = hardware.jetson.model_text or "a Jetson without a name"
        known = ", ".join(hardware.jetson.compatible[:4]) or "no part number"
        found = f"{named} ({known}) with {memory}"
    asked = ", ".join(DeviceModel)
    place = f" on {hardware.hostname}" if hardware.hostname else ""
    return f"device model: asked for one of {asked}; found {found}{place}"


def _by_words(jetson: Jetson, memory_bytes: int) -> DeviceModel | None:
    words = set(re.split(r"[^A-Z0-9]+", jetson.model_text.upper()))
    family = _family_of(jetson, words)
    if family is None:
        return None
    word = next((each for each in ("AGX", "NX", "NANO") if each in words), None)
    if family == "ORIN":
        word = _orin_word(word, memory_bytes)
    elif word is None and memory_bytes >= NX_LIMIT_BYTES:
        word = "AGX"
    return None if word is None else _BY_WORDS.get((family, word))


def _family_of(jetson: Jetson, words: set[str]) -> str | None:
    """The family of the processor; the name of the board counts if no processor is named."""
    named = [each.partition(",")[2] for each in jetson.compatible]
    processors = [each for each in named if re.fullmatch(r"tegra\d+", each)]
    if processors:
        return next((_FAMILIES[each] for each in processors if each in _FAMILIES), None)
    return next((family for family in ("XAVIER", "ORIN") if family in words), None)


def _orin_word(word: str | None, memory_bytes: int) -> str | None:
    """The word of an Orin's model: the written one if its memory can be true, else by memory."""
    if word == "NANO" and memory_bytes >= NANO_LIMIT_BYTES:
        word = None
    if word is not None:
        return word
    if memory_bytes >= NX_LIMIT_BYTES:
        return "AGX"
    if memory_bytes >= NANO_LIMIT_BYTES:
        return "NX"
    # One of 8 GB may be an NX or a Nano.
    return "NANO" if memory_bytes < SMALL_NANO_LIMIT_BYTES else None
