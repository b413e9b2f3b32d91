"""What the demo tells of a node, out of what the API answers about it."""

from datetime import UTC, datetime, timedelta

from api.schemas.events import Event
from api.schemas.nodes import NodeDisk, NodeGpu, NodeHardware, NodeRequirement
from workers.runner.commands import Resource
from workers.runner.onboarding import (
    hardware_lines,
    requirement_lines,
    status_lines,
    trust_lines,
)

BEGIN = datetime(2026, 11, 22, 9, 59, 58, tzinfo=UTC)
HARDWARE = NodeHardware(
    hostname="home", os_name="Debian 12", kernel="6.1", python_version="3.13", cpu_count=16,
    core_count=8, cpu_model="EPYC", memory_bytes=64 * 2**30, free_disk_bytes=31_250_000_000,
    disk_bytes=50 * 10**9,
    disks=[
        NodeDisk(name="nvme0n1", size_bytes=2 * 10**12, rotational=False, transport="nvme"),
        NodeDisk(name="vda", size_bytes=50 * 10**9, rotational=None, transport=None),
    ],
    network_mbps=None, tpm=False, is_root=True, runtimes=["process"], addresses=[],
    reboot_required=False,
)  # fmt: skip
GPU = NodeGpu(
    index=0, name="NVIDIA H100 80GB HBM3", uuid="GPU-1", memory_mib=81559, pcie_generation=5,
    pcie_lanes=16, driver_version="570", job_id=None,
)  # fmt: skip
REQUIREMENTS = [
    NodeRequirement(name="tpm-2", required="2.0", found="none", passed=True, relaxed=True),
    NodeRequirement(name="gpus-alike", required="one model", found="0", passed=True, relaxed=False),
    NodeRequirement(name="nvme-drives", required="2", found="1", passed=False, relaxed=False),
]


def node(gpus: tuple[NodeGpu, ...] = ()) -> Resource:
    return {
        "hardware": HARDWARE.model_dump(mode="json"),
        "gpus": [gpu.model_dump(mode="json") for gpu in gpus],
        "requirements": [one.model_dump(mode="json") for one in REQUIREMENTS],
    }


def events(*types: str) -> list[Resource]:
    """One every second, newest first, as the API answers them."""
    answers = [
        Event(
            id=f"evt-{second}", position=second + 9, account_id="acc-1", resource_id="nod-1",
            sequence=second, type=f"node.{kind}", message=f"says {kind}", details={},
            at=BEGIN + timedelta(seconds=second),
        ).model_dump(mode="json")
        for second, kind in enumerate(types)
    ]  # fmt: skip
    return answers[::-1]


def test_the_hardware_that_was_found_is_told_with_its_units() -> None:
    assert list(hardware_lines(node((GPU,)))) == [
        "  CPUs            16 EPYC",
        "  memory          64.0 GiB",
        "  disks           nvme0n1 2,000 GB nvme, vda 50 GB, 31.2 GB free",
        "  GPUs            0: NVIDIA H100 80GB HBM3 80 GiB",
    ]
    assert list(hardware_lines(node()))[-1] == "  GPUs            none"
    assert list(hardware_lines({"hardware": None, "gpus": []})) == []


def test_each_requirement_is_told_with_what_was_found_and_whether_it_is_relaxed() -> None:
    assert list(requirement_lines(node())) == [
        "  tpm-2           relaxed  required 2.0, found none",
        "  gpus-alike      passed   required one model, found 0",
        "  nvme-drives     failed   required 2, found 1",
    ]


def test_each_status_is_told_once_oldest_first_with_its_time() -> None:
    told = events(
        "requested", "connecting", "found", "connected", "inspected", "preparing", "prepared",
        "active",
    )  # fmt: skip
    assert list(status_lines(told)) == [
        "  new             09:59:58    +0.0 s  says requested",
        "  connecting      09:59:59    +1.0 s  says connecting",
        "  inspecting      10:00:01    +3.0 s  says connected",
        "  preparing       10:00:03    +5.0 s  says preparing",
        "  maintenance     10:00:04    +6.0 s  says prepared",
        "  active          10:00:05    +7.0 s  says active",
    ]
    assert list(status_lines([])) == []


def test_a_node_without_a_wall_is_told_loudly_and_one_with_it_is_not() -> None:
    assert list(trust_lines({**node(), "preparation": {"trusted_only_reason": None}})) == []
    assert list(trust_lines({**node(), "preparation": None})) == []
    first, *more = trust_lines({**node(), "preparation": {"trusted_only_reason": "nft: no"}})
    assert first == "TRUSTED ONLY: nft: no"
    assert "Temporal" in more[0]
