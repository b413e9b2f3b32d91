"""Requirements on machines: one machine that meets them all, and each short of one thing."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts.nodes import Disk, Gpu, Hardware
from workflows.rules.nodes import requirements as rules

GIB = 1024**3


def gpu(index: int = 0, **changes: Any) -> Gpu:
    made: dict[str, Any] = {
        "index": index,
        "name": "NVIDIA GeForce RTX 4090",
        "uuid": f"GPU-{index}",
        "memory_mib": 24_576,
        "pcie_generation": 4,
        "pcie_lanes": 16,
    }
    return Gpu(**(made | changes))


def disk(transport: str, size_tb: float) -> Disk:
    return Disk(name="d", size_bytes=int(size_tb * 1000**4), transport=transport)


def machine(**changes: Any) -> Hardware:
    """Four RTX 4090 and all that a public region asks of such a machine, to the byte."""
    made: dict[str, Any] = {
        "cpu_count": 32,
        "core_count": 16,
        "memory_bytes": 2 * 4 * 24 * GIB,
        "disks": (*[disk("nvme", 1)] * 2, *[disk("sata", 2)] * 3),
        "gpus": tuple(gpu(index) for index in range(4)),
        "network_mbps": 10_000,
        "tpm": True,
    }
    return Hardware(**(made | changes))


def failed(found: Hardware, *, public: bool = True, central: bool = False) -> list[str]:
    every = rules.evaluate(found, public=public, central_storage=central)
    return [requirement.name for requirement in every if not requirement.passed]


@pytest.mark.parametrize("central", [False, True])
def test_a_machine_that_just_meets_everything_passes(central: bool) -> None:
    assert failed(machine(), central=central) == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"gpus": (gpu(0), gpu(1, name="Tesla T4"))}, "gpus-alike"),
        ({"gpus": (gpu(0), gpu(1, name="AMD Radeon RX 7900 XTX"))}, "gpus-alike"),
        ({"disks": (disk("nvme", 4), *[disk("sata", 2)] * 3)}, "nvme-drives"),
        ({"disks": (*[disk("nvme", 0.9)] * 2, *[disk("sata", 2)] * 3)}, "nvme-drives"),
        ({"disks": (*[disk("nvme", 1)] * 2, *[disk("sata", 2)] * 2)}, "sata-drives"),
        (
            {"disks": (*[disk("nvme", 1)] * 2, *[disk("sata", 2)] * 2, disk("sata", 1))},
            "sata-drives",
        ),
        ({"tpm": False}, "tpm-2"),
        ({"memory_bytes": 2 * 4 * 24 * GIB - 1}, "memory-per-vram"),
        ({"core_count": 15}, "cores-per-gpu"),
        ({"core_count": None, "cpu_count": 15}, "cores-per-gpu"),
        ({"gpus": (gpu(pcie_lanes=4),)}, "pcie-lanes"),
        ({"gpus": (gpu(pcie_lanes=None),)}, "pcie-lanes"),
        ({"gpus": (gpu(memory_mib=None),)}, "memory-per-vram"),
    ],
)
def test_one_thing_short_is_one_failed_requirement(changes: dict[str, Any], name: str) -> None:
    assert failed(machine(**changes)) == [name]


def test_central_storage_asks_for_the_network_and_not_for_sata_drives() -> None:
    found = machine(network_mbps=1000, disks=(disk("nvme", 1), disk("nvme", 1)))
    assert failed(found, central=True) == ["network-10gb"]
    assert failed(machine(network_mbps=None), central=True) == ["network-10gb"]


def test_pcie_3_asks_for_two_cores_a_gpu() -> None:
    found = machine(core_count=8, gpus=tuple(gpu(i, pcie_generation=3) for i in range(4)))
    assert failed(found) == []
    assert failed(machine(core_count=8)) == ["cores-per-gpu"]


def test_lanes_of_sxm_boards_do_not_count() -> None:
    board = gpu(name="NVIDIA A100-SXM4-80GB", pcie_lanes=4)
    assert failed(machine(gpus=(board,))) == []


def test_a_private_region_does_not_ask_what_only_public_ones_do() -> None:
    found = machine(cpu_count=1, memory_bytes=GIB, gpus=(gpu(pcie_lanes=1),))
    assert failed(found, public=False) == []


@pytest.mark.parametrize(
    ("owned_at", "addresses", "is_private"),
    [
        ("10.0.0.7", (), True),
        ("172.31.255.1", (), True),
        ("gpu7.example.com", ("203.0.113.7", "192.168.4.2"), True),
        ("203.0.113.7", ("203.0.113.7",), False),
        ("172.32.0.1", (), False),
        ("127.0.0.1", ("169.254.3.4",), False),
        ("fd00::7", (), False),
    ],
)
def test_an_owners_machine_needs_a_private_address_unless_peers_is_relaxed(
    owned_at: str, addresses: tuple[str, ...], is_private: bool
) -> None:
    found = machine(addresses=addresses)
    for relaxed in ((), ("peers",)):
        (peers,) = (
            each
            for each in rules.evaluate(
                found, public=False, central_storage=False, relaxed=relaxed, owned_at=owned_at
            )
            if each.name == "peers"
        )
        assert peers.passed == (is_private or bool(relaxed))
        assert owned_at in peers.found
    assert rules.unknown_names(["peers"]) == ()


def test_a_leased_machine_is_connected_with_its_peers_by_its_cloud() -> None:
    every = rules.evaluate(machine(), public=True, central_storage=False)
    assert "peers" not in {requirement.name for requirement in every}


def test_a_requirement_says_what_was_found() -> None:
    every = rules.evaluate(
        machine(gpus=(gpu(0), gpu(1, name="Tesla T4"))), public=False, central_storage=False
    )
    assert every[0].found == "1×RTX4090, 1×T4"


def told(found: Hardware, name: str, *, central: bool = False) -> tuple[str, str, bool]:
    (one,) = (
        each
        for each in rules.evaluate(found, public=True, central_storage=central)
        if each.name == name
    )
    return one.required, one.found, one.passed


@pytest.mark.parametrize(
    ("changes", "name", "required", "found", "passed"),
    [
        ({}, "gpus-alike", "all GPUs of one model", "4×RTX4090", True),
        ({"gpus": ()}, "gpus-alike", "all GPUs of one model", "no GPU", True),
        ({}, "tpm-2", "TPM 2.0", "TPM 2.0", True),
        ({"tpm": False}, "tpm-2", "TPM 2.0", "no TPM 2.0", False),
        *(
            (
                {"disks": drives},
                "nvme-drives",
                "2 NVMe drives or more, together 2 TB or more",
                text,
                passed,
            )
            for drives, text, passed in (
                ((disk("nvme", 1.5), disk("nvme", 0.5)), "2 NVMe drives of 1.50, 0.50 TB", True),
                ((disk("nvme", 3),), "1 NVMe drive of 3.00 TB", False),
                ((disk("sata", 3),), "no NVMe drive", False),
            )
        ),
        (
            {"disks": (disk("sata", 2),)},
            "sata-drives",
            "3 SATA drives or more of 2 TB or more each",
            "1 SATA drive of 2.00 TB",
            False,
        ),
        (
            {"memory_bytes": 12 * GIB},
            "memory-per-vram",
            "192.0 GiB or more, twice the VRAM",
            "12.0 GiB",
            False,
        ),
        (
            {"gpus": (gpu(0), gpu(1, memory_mib=None))},
            "memory-per-vram",
            "twice the VRAM",
            "192.0 GiB, VRAM unknown",
            False,
        ),
        (
            {"core_count": 3, "cpu_count": 7},
            "cores-per-gpu",
            "4 cores or more a GPU, 16 for 4",
            "3 cores with 7 threads",
            False,
        ),
        (
            {"core_count": None},
            "cores-per-gpu",
            "4 cores or more a GPU, 16 for 4",
            "32 cores with 32 threads",
            True,
        ),
    ],
)
def test_a_requirement_says_what_it_asks_and_what_was_found(
    changes: dict[str, Any], name: str, required: str, found: str, passed: bool
) -> None:
    assert told(machine(**changes), name) == (required, found, passed)


@pytest.mark.parametrize(
    ("mbps", "found", "passed"),
    [
        (10_000, "10,000 Mb/s", True),
        (9_999, "9,999 Mb/s", False),
        (None, "unknown", False),
        (0, "0 Mb/s", False),
    ],
)
def test_the_network_is_told_in_megabits(mbps: int | None, found: str, passed: bool) -> None:
    asked = told(machine(network_mbps=mbps), "network-10gb", central=True)
    assert asked == ("10,000 Mb/s or more", found, passed)


@pytest.mark.parametrize(
    ("lanes", "found", "passed"),
    [
        ((8, 8), "8, 8 lanes", True),
        ((8, 7), "8, 7 lanes", False),
        ((16, None), "16, unknown lanes", False),
    ],
)
def test_each_gpu_needs_eight_lanes(
    lanes: tuple[int | None, ...], found: str, passed: bool
) -> None:
    gpus = tuple(gpu(at, pcie_lanes=each) for at, each in enumerate(lanes))
    assert told(machine(gpus=gpus), "pcie-lanes")[1:] == (found, passed)
    board = gpu(name="NVIDIA A100-SXM4-80GB", pcie_lanes=1)
    assert told(machine(gpus=(board,)), "pcie-lanes")[1:] == ("all GPUs are SXM", True)


@pytest.mark.parametrize(
    ("count", "drives_tb", "passed"),
    [(1, 0.5, True), (2, 0.5, True), (3, 0.5, False), (3, 1, True), (5, 1, False), (5, 1.5, True)],
)
def test_two_gpus_share_a_terabyte_of_nvme_and_an_odd_one_has_its_own(
    count: int, drives_tb: float, passed: bool
) -> None:
    found = machine(
        gpus=tuple(gpu(at) for at in range(count)),
        disks=(disk("nvme", drives_tb), disk("nvme", drives_tb)),
    )
    assert told(found, "nvme-drives")[2] is passed


def test_each_generation_from_pcie_4_on_or_unknown_asks_for_four_cores() -> None:
    for generation, cores in ((2, 2), (3, 2), (4, 4), (5, 4), (None, 4)):
        mixed = (gpu(0, pcie_generation=3), gpu(1, pcie_generation=generation))
        asked = told(machine(gpus=mixed), "cores-per-gpu")[0]
        assert asked == f"{cores} cores or more a GPU, {2 * cores} for 2"


def test_the_addresses_of_a_machine_are_told_once_each_with_its_owners_first() -> None:
    found = machine(addresses=("203.0.113.9", "203.0.113.7", "192.168.4.2"))
    every = rules.evaluate(found, public=False, central_storage=False, owned_at="203.0.113.7")
    assert every[-1].found == "203.0.113.7, 203.0.113.9, 192.168.4.2"
    assert rules.private_address(("203.0.113.7", "10.0.0.1", "10.0.0.2")) == "10.0.0.1"


BARE = Hardware(cpu_count=1, memory_bytes=GIB, gpus=(gpu(0), gpu(1, name="Tesla T4")))


@given(relaxed=st.sets(st.sampled_from(rules.NAMES)), public=st.booleans(), central=st.booleans())
def test_exactly_the_relaxed_ones_are_spared(
    relaxed: set[str], public: bool, central: bool
) -> None:
    asked: dict[str, Any] = {
        "public": public, "central_storage": central, "owned_at": "203.0.113.7",
    }  # fmt: skip
    plain = rules.evaluate(BARE, **asked)
    eased = rules.evaluate(BARE, **asked, relaxed=relaxed)
    for before, after in zip(plain, eased, strict=True):
        assert after.passed == (before.passed or before.name in relaxed)
        assert after.relaxed == (not before.passed and before.name in relaxed)
        assert (after.required, after.found) == (before.required, before.found)


def test_all_relaxes_everything_and_still_says_what_was_found() -> None:
    every = rules.evaluate(BARE, public=True, central_storage=False, relaxed=["all"])
    assert all(requirement.passed for requirement in every)
    assert any(requirement.relaxed for requirement in every)


def test_names_that_are_no_requirement_are_told() -> None:
    assert rules.unknown_names(["all", "tpm-2", "tmp-2"]) == ("tmp-2",)


@pytest.mark.parametrize("count", range(1, 17))
def test_what_grows_with_the_gpus_is_rounded_up_and_counted_to_the_last(count: int) -> None:
    half = (count + 1) // 2 / 2  # Two drives, so that the second is not what is missing.
    enough: dict[str, Any] = {
        "gpus": tuple(gpu(index) for index in range(count)),
        "disks": (*[disk("nvme", half)] * 2, *[disk("sata", 2)] * 3),
        "memory_bytes": 2 * count * 24 * GIB,
        "core_count": 4 * count,
    }
    assert failed(machine(**enough)) == []
    just_less = Disk(name="d", size_bytes=int(half * 1000**4) - 1, transport="nvme")
    short: dict[str, dict[str, Any]] = {
        "nvme-drives": {"disks": (disk("nvme", half), just_less, *[disk("sata", 2)] * 3)},
        "memory-per-vram": {"memory_bytes": 2 * count * 24 * GIB - 1},
        "cores-per-gpu": {"core_count": 4 * count - 1},
    }
    for name, changes in short.items():
        assert failed(machine(**(enough | changes))) == [name], name


@pytest.mark.parametrize(
    ("changes", "central", "relaxed", "missed"),
    [
        ({}, True, (), []),
        ({"disk_bytes": int(0.89 * rules.TB)}, True, (), ["storage-disk"]),
        ({"disk_bytes": 0}, True, ("storage-disk",), []),
        ({"network_mbps": 1000}, True, (), ["network-10gb"]),
        ({"network_mbps": 1000}, False, (), []),
    ],
)
def test_a_storage_node_needs_disk_and_network_and_nothing_of_gpus_drives_or_tpm(
    changes: dict[str, Any], central: bool, relaxed: tuple[str, ...], missed: list[str]
) -> None:
    bare = {"gpus": (), "disks": (), "tpm": False, "disk_bytes": rules.TB, "network_mbps": 10_000}
    found = rules.evaluate_storage(
        machine(**{**bare, **changes}), central_storage=central, relaxed=relaxed
    )
    assert [each.name for each in found if not each.passed] == missed


def test_a_storage_node_of_ones_own_has_a_private_address() -> None:
    found = rules.evaluate_storage(
        machine(disk_bytes=rules.TB), central_storage=True, owned_at="203.0.113.7"
    )
    assert [each.name for each in found if not each.passed] == ["peers"]
