"""One GPU model has one name of ours, whatever people, drivers and marketplaces call it."""

import pytest

from activities.providers.vastai.catalogue import gpu_type_of
from workflows.rules.catalogue.gpu_names import canonical_name, gpu_type_of_driver_name, model_of

MODELS = [
    ("RTX3090", "RTX3090", ["NVIDIA GeForce RTX 3090"], [("RTX 3090", 24576)]),
    ("RTX4090", "RTX4090", ["NVIDIA GeForce RTX 4090"], [("RTX 4090", 24564)]),
    ("RTX5090", "RTX5090", ["NVIDIA GeForce RTX 5090"], [("RTX 5090", 32607)]),
    ("RTX3080Ti", "RTX3080Ti", ["NVIDIA GeForce RTX 3080TI"], [("RTX 3080 Ti", 12288)]),
    ("RX7900XTX", "RX7900XTX", [], [("RX 7900 XTX", 24560)]),
    ("RTXA4000", "A4000", ["NVIDIA RTX A4000"], [("RTX A4000", 16376)]),
    ("RTXA5000", "A5000", ["NVIDIA RTX A5000"], [("RTX A5000", 24564)]),
    ("RTXA6000", "A6000", ["NVIDIA RTX A6000"], [("RTX A6000", 49140)]),
    ("RTX6000Ada", "RTX6000Ada", ["NVIDIA RTX 6000 Ada Generation"], [("RTX 6000Ada", 49140)]),
    (
        "RTXPRO6000",
        "RTXPRO6000",
        [
            f"NVIDIA RTX PRO 6000 Blackwell {form} Edition"
            for form in ("Server", "Workstation", "Max-Q Workstation")
        ],
        [(f"RTX PRO 6000 {form}", 97887) for form in ("S", "WS", "Max-Q")],
    ),
    ("QuadroRTX8000", "Q-RTX8000", [], [("Q RTX 8000", 46080)]),
    ("T4", "T4", ["Tesla T4"], [("Tesla T4", 15360)]),
    ("P100", "P100", [], [("Tesla P100", 16384)]),
    (
        "V100",
        "V100-16GB",
        [f"Tesla V100-{form}-16GB" for form in ("PCIE", "SXM2", "FHHL")],
        [("Tesla V100", 16384), ("Tesla V100", 16160)],
    ),
    (
        "V100-32GB",
        "V100-32GB",
        [f"Tesla V100-{form}-32GB" for form in ("PCIE", "SXM2")],
        [("Tesla V100", 32768), ("Tesla V100", 32510)],
    ),
    ("A10", "A10", [], [("A10", 23028)]),
    ("A30", "A30", ["NVIDIA A30", "NVIDIA  A30"], [("A30", 24576)]),
    ("A40", "A40", ["NVIDIA A40"], [("A40", 46068)]),
    ("L4", "L4", ["NVIDIA L4"], [("L4", 23034)]),
    ("L40", "L40", ["NVIDIA L40"], [("L40", 46068)]),
    ("L40S", "L40S", ["NVIDIA L40S"], [("L40S", 46068)]),
    (
        "A100",
        "A100-40GB",
        ["NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"],
        [("A100 PCIE", 40960), ("A100 SXM4", 40536), ("A100 SXM4", 39000)],
    ),
    (
        "A100-80GB",
        "A100-80GB",
        ["NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"],
        [("A100 PCIE", 81920), ("A100 SXM4", 80994)],
    ),
    ("H100", "H100-PCIe", ["NVIDIA H100 PCIe"], [("H100 PCIE", 81559)]),
    ("H100", "H100-SXM", ["NVIDIA H100 80GB HBM3"], [("H100 SXM", 81559)]),
    ("H100-NVL", "H100-NVL", ["NVIDIA H100 NVL"], [("H100 NVL", 95830)]),
    ("H200", "H200", ["NVIDIA H200"], [("H200", 143771)]),
    ("H200-NVL", "H200-NVL", ["NVIDIA H200 NVL"], [("H200 NVL", 143771), ("H200 NVL", 146432)]),
    ("B200", "B200", ["NVIDIA B200"], [("B200", 183359)]),
    ("B300", "B300", ["NVIDIA B300 SXM6 AC"], [("B300", 275040), ("B300 PC", 294912)]),
    ("MI300X", "MI300X", ["AMD Instinct MI300X OAM"], []),
    ("MI250X", "MI250X", [], [("InstinctMI250X", 131072)]),
]
"""Our name, how people write it, RunPod's ids, and Vast.ai's names with the MiB that it states."""


@pytest.mark.parametrize(("gpu_type", "written", "runpod", "vastai"), MODELS)
def test_every_model_of_the_marketplaces_has_its_name_in_the_catalogue(
    gpu_type: str, written: str, runpod: list[str], vastai: list[tuple[str, int]]
) -> None:
    assert model_of(gpu_type) is not None
    assert canonical_name(written) == gpu_type
    assert [gpu_type_of_driver_name(each) for each in runpod] == [gpu_type] * len(runpod)
    assert [canonical_name(each) for each in runpod] == [gpu_type] * len(runpod)
    assert [gpu_type_of(*each) for each in vastai] == [gpu_type] * len(vastai)


@pytest.mark.parametrize(
    ("name", "memory_mib"),
    [
        ("A100 SXM4", 61440),
        ("Tesla V100", 24576),
        ("RTX 4090", 49140),
        ("A100 SXM4", None),
        ("A100 SXM4", "much"),
    ],
)
def test_a_memory_that_is_not_within_7_percent_of_the_models_is_no_offer(
    name: str, memory_mib: object
) -> None:
    assert gpu_type_of(name, memory_mib) is None
