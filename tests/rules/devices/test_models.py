"""Models of devices: each Jetson by what it says, and every other machine refused by name."""

import pytest

from workflows.contracts.nodes import Hardware, Jetson
from workflows.rules.devices.models import DeviceModel, device_model_of, refusal_of

GIB = 1024**3
ORIN, XAVIER = "nvidia,tegra234", "nvidia,tegra194"


def machine(memory_gib: float, model_text: str, *compatible: str) -> Hardware:
    jetson = Jetson(model_text=model_text, compatible=compatible)
    memory = int(memory_gib * GIB)
    return Hardware(cpu_count=8, memory_bytes=memory, hostname="shop-7", jetson=jetson)


@pytest.mark.parametrize(
    ("model", "memory_gib", "model_text", "compatible"),
    [
        ("AGX Xavier", 31.2, "NVIDIA Jetson AGX Xavier Developer Kit", ("nvidia,p2972-0000",)),
        ("AGX Xavier", 31.2, "Jetson-AGX", (XAVIER,)),
        ("AGX Xavier", 15.4, "NVIDIA Jetson AGX Xavier", (XAVIER,)),
        ("AGX Xavier", 31.2, "a maker's board", (XAVIER,)),
        ("Xavier NX", 7.6, "NVIDIA Jetson Xavier NX Developer Kit", (XAVIER,)),
        ("Xavier NX", 7.6, "jetson-xavier-nx", ("nvidia,p3449-0000+p3668-0001", XAVIER)),
        ("AGX Orin", 61.4, "NVIDIA Jetson AGX Orin Developer Kit", (ORIN,)),
        ("AGX Orin", 29.9, "Jetson AGX Orin", ()),
        ("AGX Orin", 61.4, "a maker's board", ("maker,board", ORIN)),
        ("Orin NX", 15.3, "NVIDIA Orin NX Developer Kit", (ORIN,)),
        ("Orin NX", 15.3, "NVIDIA Jetson Orin NX Engineering Reference Developer Kit Super", ()),
        ("Orin NX", 7.4, "a maker's board", ("nvidia,p3509-0000+p3767-0001", ORIN)),
        # Boards that were flashed with the name of a smaller module.
        ("Orin NX", 15.3, "NVIDIA Jetson Orin Nano Developer Kit", (ORIN,)),
        ("Orin NX", 15.3, "NVIDIA Jetson Orin Nano Developer Kit", ("nvidia,p3767-0000", ORIN)),
        ("Orin NX", 7.4, "NVIDIA Jetson Orin Nano Developer Kit", ("nvidia,p3767-0001", ORIN)),
        ("Orin NX", 15.3, "a maker's board", (ORIN,)),
        ("Orin Nano", 7.4, "NVIDIA Orin Nano Developer Kit", (ORIN,)),
        (
            *("Orin Nano", 7.4),
            "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
            ("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", ORIN),
        ),
        ("Orin Nano", 7.4, "a maker's board", ("nvidia,p3767-0003", ORIN)),
        ("Orin Nano", 3.3, "a maker's board", ("nvidia,p3767-0004", ORIN)),
        ("Orin Nano", 3.3, "a maker's board", (ORIN,)),
    ],
)
def test_a_jetson_is_recognised_by_its_name_its_module_and_its_memory(
    model: str, memory_gib: float, model_text: str, compatible: tuple[str, ...]
) -> None:
    found = machine(memory_gib, model_text, *compatible)
    assert device_model_of(found) == DeviceModel(f"Jetson {model}")
    assert refusal_of(found) is None


@pytest.mark.parametrize(
    ("memory_gib", "model_text", "compatible"),
    [
        (3.9, "NVIDIA Jetson Nano Developer Kit", ("nvidia,p3450-0000", "nvidia,tegra210")),
        (7.7, "quill", ("nvidia,p2771-0000", "nvidia,tegra186")),
        (7.7, "NVIDIA Jetson TX2 Developer Kit", ("nvidia,tegra186",)),
        (125.7, "NVIDIA Jetson AGX Thor Developer Kit", ("nvidia,tegra264",)),
        (61.4, "NVIDIA IGX Orin Developer Kit", ("nvidia,p3740-0002+p3701-0008", ORIN)),
        (7.4, "a maker's board", (ORIN,)),
        (7.6, "a maker's board", (XAVIER,)),
        (3.9, "NVIDIA Jetson Nano Orin", ("nvidia,tegra210",)),
    ],
)
def test_another_board_is_refused_with_what_was_found(
    memory_gib: float, model_text: str, compatible: tuple[str, ...]
) -> None:
    found = machine(memory_gib, model_text, *compatible)
    assert device_model_of(found) is None
    refusal = refusal_of(found) or ""
    expected = f"found {model_text} ({', '.join(compatible)}) with {memory_gib:.1f} GiB of memory"
    assert expected in refusal
    assert refusal.startswith("device model: asked for one of Jetson AGX Xavier, ")
    assert refusal.endswith(" on shop-7")


def test_a_machine_that_is_no_jetson_is_refused_with_its_processor() -> None:
    server = Hardware(cpu_count=64, memory_bytes=256 * GIB, cpu_model="AMD EPYC 7543")
    assert device_model_of(server) is None
    refusal = refusal_of(server) or ""
    assert refusal.endswith("found no Jetson, but AMD EPYC 7543 with 256.0 GiB of memory")
