"""The sentences of refusals: what was asked, and what the offer has."""

from typing import Any

import pytest

from tests.rules.placement.cloud_offers import cloud_offer, market
from tests.rules.placement.offers import GIB, OTHER, job, offer
from workflows.contracts.placement import Demand, NodeOffer, SpotPolicy
from workflows.rules.placement.inventory import Inventory
from workflows.rules.placement.node_refusals import NO_FEE_CREDITS, refusals_of


def demand(gpus: int = 0, **changes: Any) -> Demand:
    return job(gpus=gpus, **changes).demand


def told(asked: Demand, *offers: NodeOffer) -> tuple[str, str, bool]:
    """The code, the words and `ever` of the only refusal."""
    (only,) = refusals_of(asked, Inventory(offers))
    return only.code, only.detail, only.ever


PRICED: dict[str, Any] = {
    "account_id": OTHER,
    "public": True,
    "runtimes": ("podman",),
    "market_microcredits_per_gpu_hour": 3_000_000,
}


NO_CREDITS = ", and its payer has none left: add some"


@pytest.mark.parametrize(
    ("asked", "node", "code", "words", "ever"),
    [
        (demand(2), offer(gpus=4, free=1), "gpu-count", "asked 2×A100, 1 free of 4", True),
        (demand(8), offer(gpus=4), "gpu-count", "asked 8×A100, has 4", False),
        (demand(1), offer(gpus=0), "gpu-type", "asked 1×A100, has no GPU", False),
        (demand(1), offer(gpus=2, gpu_type="T4"), "gpu-type", "asked 1×A100, has 2×T4", False),
        (demand(cpu_count=17), offer(), "cpu", "asked 17 CPUs, has 16", False),
        (demand(cpu_count=2), offer(free_cpu_count=1), "cpu", "asked 2 CPUs, 1 free of 16", True),
        (demand(), offer(free_cpu_count=0), "cpu", "asked 1 CPU, 0 free of 16", True),
        (
            demand(memory_bytes=65 * GIB),
            offer(),
            "memory",
            "asked 65.0 GiB of memory, has 64.0",
            False,
        ),
        (
            demand(memory_bytes=3 * GIB),
            offer(free_memory_bytes=2 * GIB + GIB // 2),
            "memory",
            "asked 3.0 GiB of memory, 2.5 free of 64.0",
            True,
        ),
        (
            demand(disk_size_gb=20),
            offer(free_disk_bytes=15_500_000_000),
            "disk",
            "asked 20 GB of disk, 15.5 free",
            True,
        ),
        (
            demand(disk_size_gb=20, data_bytes=90 * 10**9),
            offer(disk_bytes=100 * 10**9),
            "disk",
            "asked 20 GB of disk and 90.0 for its data, has 100.0",
            False,
        ),
        (
            demand(disk_size_gb=20),
            offer(free_disk_bytes=-5),
            "disk",
            "asked 20 GB of disk, 0.0 free",
            True,
        ),
        (demand(port=80), offer(used_ports=(80,)), "port", "asked port 80, which is in use", True),
        (demand(), offer(active=False), "inactive", "is not active", True),
        (
            demand(needs_image=True),
            offer(),
            "image",
            "asked a container image, has no podman",
            False,
        ),
        (
            demand(needs_confinement=True),
            offer(no_confinement_reason="a network namespace cannot be had"),
            "confinement",
            "cannot confine the run of a federated job: a network namespace cannot be had",
            False,
        ),
        (
            demand(needs_confinement=True, needs_attestation=True),
            offer(no_attestation_reason="is no SEV-SNP"),
            "attestation",
            "asked a node that attests what it runs (needs_attestation): this one is no SEV-SNP",
            False,
        ),
        (
            demand(region_id="reg-2"),
            offer(),
            "wrong-region",
            "asked region reg-2, is in reg-1",
            False,
        ),
        (
            demand(providers=("gcp", "prv-1")),
            offer(),
            "provider",
            "asked provider gcp or prv-1, is of physical",
            False,
        ),
        (
            demand(1, needs_image=True, max_price_microcredits_per_gpu_hour=2_500_000),
            offer(gpus=1, **PRICED),
            "price",
            "costs 3 credits a GPU-hour, asked at most 2.5",
            False,
        ),
        (
            demand(2, needs_image=True, worker_count=2, price_cap_microcredits_per_hour=11_000_000),
            offer(gpus=4, **PRICED),
            "price",
            "the job costs 12 credits an hour, asked at most 11",
            False,
        ),
        (
            demand(1, needs_image=True, worker_count=2, has_credits=False),
            offer(gpus=2, **PRICED),
            "credits",
            "the job costs 6 credits an hour, and its payer has none left: add some",
            False,
        ),
        (
            demand(1, needs_image=True, has_credits=False, has_fee_credits=False),
            offer(gpus=2, **PRICED),
            "credits",
            "the creator of the federated job has no credits left for its fee",
            False,
        ),
        (
            demand(1, needs_image=True),
            offer(gpus=1, account_id=OTHER, public=True, trusted_only=True),
            "not-owned",
            "runs jobs of its owner alone",
            False,
        ),
        (
            demand(1, only_owned=True),
            offer(gpus=1, account_id=OTHER, public=True, trusted_only=True),
            "not-owned",
            "asked owned machines alone, belongs to another account",
            False,
        ),
        (
            demand(2, worker_count=3),
            offer(gpus=4),
            "workers",
            "asked 3 workers of 2×A100, 2 fit here and too few elsewhere",
            False,
        ),
        (
            demand(cpu_count=9, worker_count=2),
            offer(),
            "workers",
            "asked 2 workers of 9 CPUs, 1 fits here and too few elsewhere",
            False,
        ),
        (
            demand(cpu_count=8, worker_count=2),
            offer(free_cpu_count=15),
            "workers",
            "asked 2 workers of 8 CPUs, 1 fits here and too few elsewhere",
            True,
        ),
    ],
)
def test_a_node_says_what_was_asked_and_what_it_has(
    asked: Demand, node: NodeOffer, code: str, words: str, ever: bool
) -> None:
    which = "public node" if node.account_id == OTHER else "node"
    assert told(asked, node) == (code, f"{which} n1: {words}", ever)


def test_packages_are_refused_with_the_region_whose_owner_may_allow_them() -> None:
    for name in ("home", ""):
        node = offer(has_run_roots=False, region_name=name)
        code, words, ever = told(demand(needs_apt_packages=True), node)
        assert (code, ever) == ("apt-packages", False)
        assert f"region {name or 'reg-1'} allow them" in words


def test_a_node_without_a_name_is_told_by_its_id() -> None:
    (only,) = refusals_of(demand(2), Inventory([offer("nod-7", gpus=1, node_name="")]))
    assert only.detail.startswith("node nod-7: ")
    assert (only.offer_id, only.region_id) == ("nod-7", "reg-1")


@pytest.mark.parametrize("count", [32, 33])
def test_33_nodes_are_told_as_one_and_32_each(count: int) -> None:
    nodes = [offer(f"n{at:02}", gpus=4, free=at % 2) for at in range(count)]
    found = refusals_of(demand(2), Inventory(nodes))
    if count == 32:
        assert len(found) == 32
        return
    (only,) = found
    assert only.detail == ("region home: 33 nodes, such as node n01: asked 2×A100, 1 free of 4"), (
        "that with most free"
    )
    assert (only.offer_id, only.ever) == ("reg-1", True)


def test_one_node_of_a_large_region_is_told_by_itself() -> None:
    nodes = [offer(f"n{at:02}", gpus=4, free=0) for at in range(32)]
    found = refusals_of(demand(2), Inventory([*nodes, offer("z", gpus=1)]))
    assert [each.detail for each in found] == [
        "region home: 32 nodes, such as node n00: asked 2×A100, 0 free of 4",
        "region home: node z: asked 2×A100, has 1",
    ]


# ── clouds ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("asked", "sold", "code", "words"),
    [
        (demand(), {}, "cpu-only", "asked no GPU, sells machines with GPUs alone"),
        (demand(1, gpu_types=("T4",)), {}, "gpu-type", "asked 1×T4, sells A100"),
        (demand(4), {}, "gpu-count", "asked 4×A100, sold with 1"),
        (demand(1, region_id="reg-2"), {}, "wrong-region", "asked region reg-2, is reg-c"),
        (
            demand(1, only_owned=True),
            {},
            "not-owned",
            "asked owned machines alone, these are rented",
        ),
        (
            demand(1, providers=("prv-1", "aws")),
            {},
            "provider",
            "asked provider prv-1 or aws, is of gcp",
        ),
        (
            demand(1, cpu_count=13),
            {},
            "cpu",
            "on-demand m1 (1×A100): asked 13 CPUs, has 12",
        ),
        (
            demand(1, memory_bytes=86 * GIB),
            {},
            "memory",
            "on-demand m1 (1×A100): asked 86.0 GiB of memory, has 85.0",
        ),
        (
            demand(1, spot=SpotPolicy.NEVER),
            {"spot": True},
            "spot",
            "spot m1 (1×A100): spot machines are never for it",
        ),
        (
            demand(1, needs_image=True, max_price_microcredits_per_gpu_hour=2_000_000),
            {},
            "price",
            "on-demand m1 (1×A100): costs 2.25 credits a GPU-hour, asked at most 2",
        ),
        (
            demand(1, worker_count=2, price_cap_microcredits_per_hour=4_000_000),
            {},
            "price",
            "on-demand m1 (1×A100): the job costs 4.5 credits an hour, asked at most 4",
        ),
        (
            demand(1, needs_image=True, worker_count=2, has_credits=False),
            {},
            "credits",
            f"on-demand m1 (1×A100): the job costs 4.5 credits an hour{NO_CREDITS}",
        ),
        (
            demand(1, needs_image=True, has_credits=False, has_fee_credits=False),
            {},
            "credits",
            f"on-demand m1 (1×A100): {NO_FEE_CREDITS}",
        ),
    ],
)
def test_a_cloud_says_what_was_asked_and_what_it_sells(
    asked: Demand, sold: dict[str, Any], code: str, words: str
) -> None:
    (only,) = market(cloud_offer(**sold)).refusals(asked)
    assert (only.code, only.ever) == (code, False)
    assert only.detail == f"cloud region our-cloud (east): {words}"
