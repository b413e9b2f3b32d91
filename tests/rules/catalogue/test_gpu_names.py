"""GPU names: as people write them, as drivers print them, and the class of the fee."""

import pytest

from workflows.rules.catalogue.gpu_models import CATALOGUE, GpuClass
from workflows.rules.catalogue.gpu_names import (
    GpuRequest,
    accepted_types,
    canonical_name,
    gpu_class,
    gpu_type_of_driver_name,
    is_sxm,
    near_names,
    parse_gpus,
    unknown_name_rule,
)


@pytest.mark.parametrize(
    ("printed", "gpu_type"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX3090Ti"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "RTX4070TiSuper"),
        ("NVIDIA RTX A6000", "RTXA6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTXPRO6000"),
        ("Quadro RTX 6000", "QuadroRTX6000"),
        ("AMD Radeon RX 7900 XTX", "RX7900XTX"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD Instinct MI300X VF", "MI300X"),
        ("AMD INSTINCT MI250 (MCM) OAM AC MBA", "MI250"),
        ("Radeon Instinct MI50", "MI50"),
        ("AMD Radeon PRO W7900", "RadeonProW7900"),
        ("AMD Radeon(TM) PRO W7900", "RadeonProW7900"),
        ("AMD Radeon VII", "RadeonVII"),
        ("AMD Radeon Pro VII", "RadeonProVII"),
        ("AMD GPU 0x744c", "AMD GPU 0x744c"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("Imagine  9000", "Imagine 9000"),
    ],
)
def test_a_driver_name_becomes_the_catalogues(printed: str, gpu_type: str) -> None:
    assert gpu_type_of_driver_name(printed) == gpu_type


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("a100", "A100"),
        ("A100-40GB", "A100"),
        ("nvidia a100 80gb", "A100-80GB"),
        ("rtx 4090", "RTX4090"),
        ("RTX-4090", "RTX4090"),
        ("A6000", "RTXA6000"),
        ("Radeon RX 7900 XTX", "RX7900XTX"),
        ("H100-PCIe", "H100"),
        ("H100-SXM", "H100"),
        ("H100-NVL", "H100-NVL"),
        ("V100-16GB", "V100"),
        ("Tesla V100-FHHL-16GB", "V100"),
        ("A100 PCIE", "A100"),
        ("Q-RTX8000", "QuadroRTX8000"),
        ("RTX PRO 6000 WS", "RTXPRO6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTXPRO6000"),
        ("RTX 6000Ada", "RTX6000Ada"),
        ("NVIDIA B300 SXM6 AC", "B300"),
        ("B300 PC", "B300"),
        ("NVIDIA  A30", "A30"),
        ("A100-16GB", None),
        ("B52", None),
        ("", None),
    ],
)
def test_what_a_person_writes_becomes_the_catalogues_name(written: str, name: str | None) -> None:
    assert canonical_name(written) == name


def test_every_model_is_found_by_its_own_name_and_no_spelling_means_two() -> None:
    assert [canonical_name(model.name) for model in CATALOGUE] == [m.name for m in CATALOGUE]
    assert [gpu_type_of_driver_name(m.name) for m in CATALOGUE] == [m.name for m in CATALOGUE]


@pytest.mark.parametrize(
    ("gpu_type", "kind"),
    [
        ("RTX4090", GpuClass.CONSUMER),
        ("RTXA6000", GpuClass.PROFESSIONAL),
        ("A100", GpuClass.DATACENTER),
        ("MI300X", GpuClass.DATACENTER),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", GpuClass.CONSUMER),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", GpuClass.DATACENTER),
        ("NVIDIA RTX A1000 Laptop GPU", GpuClass.PROFESSIONAL),
        ("Tesla M40", GpuClass.DATACENTER),
        ("AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2", GpuClass.DATACENTER),
        ("Radeon Instinct MI8", GpuClass.DATACENTER),
        ("AMD Radeon (TM) Pro WX 9100", GpuClass.PROFESSIONAL),
        ("AMD FirePro S9300", GpuClass.PROFESSIONAL),
        ("RadeonAIProR9700", GpuClass.PROFESSIONAL),
        ("Radeon RX 6800/6800 XT / 6900 XT", GpuClass.CONSUMER),
        ("RX7600", GpuClass.CONSUMER),
        ("Imagine 9000", GpuClass.CONSUMER),
    ],
)
def test_the_fee_class_goes_by_catalogue_then_words(gpu_type: str, kind: GpuClass) -> None:
    assert gpu_class(gpu_type) == kind


@pytest.mark.parametrize(
    ("printed", "sxm"),
    [
        ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H200", True),
        ("NVIDIA H200 NVL", False),
        ("NVIDIA A100 80GB PCIe", False),
        ("NVIDIA GeForce RTX 4090", False),
    ],
)
def test_sxm_boards_are_known_by_their_name(printed: str, sxm: bool) -> None:
    assert is_sxm(printed) is sxm


def test_a_family_takes_its_larger_members_and_not_the_other_way_round() -> None:
    assert accepted_types(("A100",)) == {"A100", "A100-80GB"}
    assert accepted_types(("A100-80GB",)) == {"A100-80GB"}


def test_short_forms() -> None:
    assert parse_gpus("A100:4") == GpuRequest("A100", 4)
    assert parse_gpus(" RTX 4090 ") == GpuRequest("RTX 4090", 1)
    assert parse_gpus("CPU") == GpuRequest(None, 0)


@pytest.mark.parametrize("short_form", ["", ":", ":4", "A100:", "A100:-1", "A100:0", "A:B:1"])
def test_a_malformed_short_form_is_refused(short_form: str) -> None:
    with pytest.raises(ValueError, match=r"is|COUNT"):
        parse_gpus(short_form)


def test_near_names_are_offered() -> None:
    assert "H100" in near_names("H1OO")
    assert near_names("zzzzzzzz") == ()


def test_at_most_three_names_are_offered_the_nearest_first_and_each_once() -> None:
    assert near_names("RTX4O90") == ("RTX4090", "RTX4090D", "RTX5090")
    assert near_names("zzzzzzzz") == ()
    assert near_names("IMAGlNE9000", ("IMAGINE 9000",)) == ("IMAGINE 9000",)


def test_an_unknown_name_is_told_with_the_names_that_are_near() -> None:
    assert unknown_name_rule("zzzzzzzz") == "no GPU type is called zzzzzzzz"
    assert unknown_name_rule("A1OO") == (
        f"no GPU type is called A1OO; did you mean {' or '.join(near_names('A1OO'))}?"
    )
    assert near_names("A1OO")[0] == "A100"


def test_a_short_form_has_at_most_100_characters_and_64_gpus() -> None:
    assert parse_gpus("a" * 98 + ":4").count == 4
    with pytest.raises(ValueError, match="is at most 100 characters"):
        parse_gpus("a" * 99 + ":4")
    assert parse_gpus(" A100 :64 ") == GpuRequest("A100", 64)
    for count in (0, 65):
        with pytest.raises(ValueError, match="COUNT is 1 to 64"):
            parse_gpus(f"A100:{count}")
