"""Providers that a job names are tried in the order of the job, whatever the others cost."""

from datetime import timedelta
from typing import Any

import pytest

from tests.rules.placement.cloud_offers import cloud_offer, market
from tests.rules.placement.offers import NOW, by_demand, guest, job, offer, public
from workflows.contracts.billing import UsageRates
from workflows.contracts.placement import CloudOffer, Demand, Plan, SpotPolicy
from workflows.rules.placement.cloud_market import Market
from workflows.rules.placement.planner import PlanningContext, plan
from workflows.rules.placement.ranking import rank

CLOUD = 2_000_000


def rented(kind: str = "runpod", provider: str = "", gpus: int = 1, **changes: Any) -> CloudOffer:
    """A marketplace's offer at the whole price of the cloud's offer with its fee."""
    provider_id = provider or f"prv-{kind}"
    made: dict[str, Any] = {
        "region_id": f"reg-{provider_id}",
        "region_name": provider_id,
        "cloud_region": kind,
        "provider_id": provider_id,
        "provider_kind": kind,
        "microcredits_per_hour": CLOUD + 250_000 * gpus,
        "read_at": NOW,
        "fee": UsageRates(gpu_count=gpus),
    }
    return cloud_offer(kind, gpus, **(made | changes))


def planned(asked: Any, offers: Any = (), sold: Market | None = None) -> Plan:
    context = PlanningContext(now=NOW, market=sold or market())
    return plan(by_demand([asked]), offers, context)


def chosen(made: Plan, sold: Market) -> str:
    """The provider of the machine that is made, or the node that is taken."""
    if made.bursts:
        return sold.offer(made.bursts[0].offer_id).provider_id
    return made.assignments[0].slots[0].node_id if made.assignments else "none"


def demand(*providers: str, gpus: int = 1, **more: Any) -> Demand:
    return job(gpus=gpus, providers=providers, **more).demand


ALL = (
    cloud_offer(),
    rented("runpod"),
    rented("vastai", microcredits_per_hour=100_000),
    rented("runpod", "prv-cheap", microcredits_per_hour=50_000),
    rented("local", gpus=0, gpu_type=None, microcredits_per_hour=0, cpu_count=8),
)


@pytest.mark.parametrize(
    ("names", "provider"),
    [
        ((), "prv-cheap"),
        (("runpod", "vastai"), "prv-cheap"),
        (("vastai", "runpod"), "prv-vastai"),
        (("prv-runpod", "prv-cheap"), "prv-runpod"),
        (("gcp", "vastai"), "prv-c"),
        (("physical", "gcp"), "n1"),
        (("gcp", "physical"), "prv-c"),
    ],
)
def test_the_first_of_the_named_providers_that_has_room_is_taken(
    names: tuple[str, ...], provider: str
) -> None:
    sold = market(*ALL)
    nodes = [offer(gpus=1)] if "physical" in names else []
    assert chosen(planned(job(gpus=1, providers=names), nodes, sold), sold) == provider


def test_a_later_one_is_taken_when_an_earlier_one_cannot_satisfy_the_job() -> None:
    sold = market(*ALL)
    assert chosen(planned(job(gpus=0, providers=("runpod", "local")), (), sold), sold) == (
        "prv-local"
    ), "runpod sells no machine without GPUs"
    too_dear = job(
        gpus=1, providers=("prv-runpod", "vastai"), price_cap_microcredits_per_hour=1_000_000
    )
    assert chosen(planned(too_dear, (), sold), sold) == "prv-vastai"
    short = market(*ALL, short={"vastai-a": "none left", "vastai-b": "none left"})
    next_one = planned(job(gpus=1, providers=("vastai", "prv-runpod")), (), short)
    assert chosen(next_one, short) == "prv-runpod"
    taken = [offer(gpus=1, free=0)]
    there = job(gpus=1, providers=("physical", "prv-runpod"))
    assert chosen(planned(there, taken, sold), sold) == "prv-runpod"


def test_a_machine_of_others_is_taken_before_one_of_a_provider_that_is_named_later() -> None:
    sold = market(*ALL)
    nodes = [public()]
    assert chosen(planned(guest(providers=("physical", "vastai")), nodes, sold), sold) == "n1"
    assert chosen(planned(guest(providers=("vastai", "physical")), nodes, sold), sold) == (
        "prv-vastai"
    )
    full = [public(free=0)]
    late = guest(providers=("physical", "vastai"), age_s=timedelta(hours=1).total_seconds())
    assert chosen(planned(late, full, sold), sold) == "prv-vastai"


def test_a_kind_of_price_0_is_taken_by_jobs_that_name_it_alone() -> None:
    sold = market(*ALL)
    made = planned(job(gpus=0), (), sold)
    assert chosen(made, sold) == "none"
    (refused,) = made.refused
    words = {each.code: each.detail for each in refused.refusals}
    assert "placement.providers: [local]" in words["provider"]


def test_of_one_price_a_node_comes_first_then_an_own_cloud_then_a_marketplace() -> None:
    alike = (rented("vastai"), rented("runpod"), cloud_offer())
    sold = market(*alike)
    assert chosen(planned(job(gpus=1), (), sold), sold) == "prv-c"
    nodes = [offer(gpus=1, microcredits_per_gpu_hour=CLOUD + 250_000)]
    assert chosen(planned(job(gpus=1), nodes, sold), sold) == "n1"
    ranked = rank(demand(), nodes, sold).items
    assert [each.provider_kind for each in ranked] == ["physical", "gcp", "runpod", "vastai"]


def test_offers_are_ranked_in_the_order_of_the_names_each_of_them_once() -> None:
    sold = market(*ALL)
    asked = demand("prv-runpod", "gcp", "runpod", "physical")
    ranked = [
        (each.provider_kind, each.provider_id) for each in rank(asked, [offer(gpus=1)], sold).items
    ]
    assert ranked == [
        ("runpod", "prv-runpod"),
        ("gcp", "prv-c"),
        ("runpod", "prv-cheap"),
        ("physical", ""),
    ]


@pytest.mark.parametrize(
    ("asked", "sold", "code", "words"),
    [
        (
            {"max_price_microcredits_per_gpu_hour": 1_000_000},
            {},
            "price",
            "costs 2.25 credits a GPU-hour, asked at most 1",
        ),
        (
            {"price_cap_microcredits_per_hour": 2_000_000},
            {},
            "price",
            "the job costs 2.25 credits an hour, asked at most 2",
        ),
        ({"cpu_count": 64}, {}, "cpu", "asked 64 CPUs, has 12"),
        ({"memory_bytes": 100 * 1024**3}, {}, "memory", "asked 100.0 GiB of memory, has 85.0"),
        (
            {"disk_size_gb": 500},
            {"most_disk_gb": 120},
            "disk",
            "asked 500 GB of disk, has 120",
        ),
        (
            {"has_secrets": True},
            {},
            "untrusted",
            "placement.untrusted: true gives these machines what the job has",
        ),
        ({"providers": ("vastai",)}, {}, "provider", "asked provider vastai, is of runpod"),
        (
            {"spot": SpotPolicy.REQUIRED},
            {},
            "spot",
            "asked a spot machine (placement.spot), runpod sells none",
        ),
        ({"gpu_types": ("L4",)}, {}, "gpu-type", "asked 1×L4, sells A100"),
        ({"only_owned": True}, {}, "not-owned", "asked owned machines alone, these are rented"),
    ],
)
def test_an_offer_that_is_refused_says_what_was_asked_and_what_it_has(
    asked: dict[str, Any], sold: dict[str, Any], code: str, words: str
) -> None:
    (refusal,) = market(rented(**sold)).refusals(job(gpus=1, **asked).demand)
    assert refusal.code == code
    assert refusal.detail.endswith(words)
