"""Machines that are made for jobs, by example: which, in which order, and what is said instead."""

from typing import Any

import pytest

from tests.rules.placement.cloud_offers import cloud_offer, market
from tests.rules.placement.offers import GIB, NOW, OTHER, by_demand, job, offer
from workflows.contracts.billing import UsageRates
from workflows.contracts.machines import MachineOffer
from workflows.contracts.placement import (
    Burst,
    CloudOffer,
    NodeOffer,
    PendingJob,
    Plan,
    Refusal,
    SpotPolicy,
)
from workflows.rules.placement.cloud_costs import machine_cap
from workflows.rules.placement.cloud_market import Market
from workflows.rules.placement.planner import PlanningContext, plan
from workflows.rules.placement.ranking import rank

SPOT = cloud_offer("spotty", spot=True, microcredits_per_hour=1_000_000)
FULL = {"east-a": "out of stock", "east-b": "out of stock"}
NO_QUOTA = {"east-b": "Quota 'A100' exceeded"}


def planned(asked: list[PendingJob], sold: Market, *nodes: NodeOffer) -> Plan:
    return plan(by_demand(asked), nodes, PlanningContext(now=NOW, market=sold))


def taken(made: Plan) -> list[str]:
    """The offers that jobs have machines made of."""
    return [burst.offer_id for burst in made.bursts]


def only_refusal(asked: PendingJob, *offers: CloudOffer, **known: Any) -> Refusal:
    made = planned([asked], market(*offers, **known))
    assert made.bursts == ()
    (refusal,) = made.refused[0].refusals
    return refusal


def test_a_job_that_fits_no_node_has_a_machine_made_for_it_and_the_next_one_too() -> None:
    jobs = [job(f"job-{number}", gpus=1, age_s=9 - number) for number in range(3)]
    made = planned(jobs, market(cloud_offer()), offer(gpus=1))
    assert [assignment.job_id for assignment in made.assignments] == ["job-0"]
    zones = cloud_offer().zones
    assert made.bursts == tuple(
        Burst(job_id=f"job-{number}", offer_id="reg-c/m1/on-demand", zones=zones)
        for number in (1, 2)
    )
    assert made.refused == ()


def asks(*prices: int, kind: str = "vastai") -> list[CloudOffer]:
    """Offers of a marketplace, each with an id of its own."""
    found = []
    for number, price in enumerate(prices):
        name = f"ask-{number}"
        made = cloud_offer(name, microcredits_per_hour=price, provider_kind=kind)
        own = made.zones[0].model_copy(update={"provider_offer_id": str(number)})
        found.append(made.model_copy(update={"zones": (own,)}))
    return found


def test_what_is_one_machine_is_given_to_one_job_of_a_round() -> None:
    jobs = [job(f"job-{number}", gpus=1, age_s=9 - number) for number in range(3)]
    made = planned(jobs, market(*asks(1_000_000, 1_100_000)))
    assert taken(made) == ["reg-c/ask-0/on-demand", "reg-c/ask-1/on-demand"]
    (refused,) = made.refused
    assert [each.code for each in refused.refusals] == ["shortage"]
    assert "another job gets it" in refused.refusals[0].detail
    assert taken(planned(jobs, market(*asks(1_000_000, kind="runpod")))) == (
        ["reg-c/ask-0/on-demand"] * 3
    )


def test_each_worker_gets_a_machine_of_its_own_or_none_does() -> None:
    asked = job(gpus=1, worker_count=2)
    (burst,) = planned([asked], market(*asks(1_000_000, 1_200_000, 1_100_000))).bursts
    assert [burst.of_worker(number).offer_id for number in range(2)] == [
        "reg-c/ask-0/on-demand",
        "reg-c/ask-2/on-demand",
    ]
    assert [each.zones[0].provider_offer_id for each in (burst, *burst.others)] == ["0", "2"]
    refusal = only_refusal(asked, *asks(1_000_000))
    assert (refusal.code, refusal.ever) == ("workers", True)
    assert "asked 2 workers, vastai offers fewer such machines now" in refusal.detail


@pytest.mark.parametrize(
    ("asked", "sold", "code"),
    [
        (job(gpus=1, region_id="reg-2"), cloud_offer(), "wrong-region"),
        (job(gpus=1, only_owned=True), cloud_offer(), "not-owned"),
        (job(gpus=1, providers=("physical", "prv-x")), cloud_offer(), "provider"),
        (job(), cloud_offer(), "cpu-only"),
        (job(gpus=1, gpu_types=("T4",)), cloud_offer(), "gpu-type"),
        (job(gpus=3), cloud_offer(gpus=4), "gpu-count"),
        (job(gpus=1, cpu_count=13), cloud_offer(), "cpu"),
        (job(gpus=1, memory_bytes=86 * GIB), cloud_offer(), "memory"),
        (job(gpus=1, spot=SpotPolicy.NEVER), SPOT, "spot"),
        (job(gpus=1, spot=SpotPolicy.REQUIRED), cloud_offer(), "spot"),
        (job(gpus=1, max_price_microcredits_per_gpu_hour=2_249_999), cloud_offer(), "price"),
        (
            job(gpus=1, worker_count=2, price_cap_microcredits_per_hour=4_499_999),
            cloud_offer(),
            "price",
        ),
        (job(gpus=1, has_credits=False), cloud_offer(), "credits"),
        (
            job(gpus=1, needs_image=True, providers=("colab",)),
            cloud_offer(provider_kind="colab"),
            "image",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_code(
    asked: PendingJob, sold: CloudOffer, code: str
) -> None:
    found = only_refusal(asked, sold)
    assert (found.code, found.region_id, found.ever) == (code, "reg-c", False)
    assert found.detail.startswith("cloud region our-cloud (east): ")


def test_a_job_that_costs_no_more_than_it_may_gets_its_machine() -> None:
    each = job(gpus=1, max_price_microcredits_per_gpu_hour=2_250_000)
    both = job("job-2", gpus=1, worker_count=2, price_cap_microcredits_per_hour=4_500_000)
    assert len(planned([each, both], market(cloud_offer())).bursts) == 2


def test_the_machine_itself_may_cost_what_the_fee_leaves_of_the_limits() -> None:
    limit = job(gpus=2, max_price_microcredits_per_gpu_hour=3_000_000)
    assert machine_cap(cloud_offer(gpus=2), limit.demand) == 5_500_000
    capped = job(gpus=2, worker_count=2, price_cap_microcredits_per_hour=9_000_000)
    assert machine_cap(cloud_offer(gpus=2), capped.demand) == 4_000_000


def test_a_container_is_no_reason_against_a_machine() -> None:
    assert taken(planned([job(gpus=1, needs_image=True)], market(cloud_offer()))) == [
        "reg-c/m1/on-demand"
    ]


def plain_offer(name: str, cpus: int, price: int) -> CloudOffer:
    """A machine without GPUs."""
    return cloud_offer(
        name,
        gpus=0,
        gpu_type=None,
        cpu_count=cpus,
        memory_bytes=4 * cpus * GIB,
        microcredits_per_hour=price,
        fee=UsageRates(cpu_count=cpus),
    )


PLAIN = (plain_offer("large", 32, 1_200_000), plain_offer("mid", 8, 300_000))


def test_a_job_without_gpus_gets_the_cheapest_machine_that_is_large_enough() -> None:
    sold = market(cloud_offer(), *PLAIN)
    assert taken(planned([job(cpu_count=8)], sold)) == ["reg-c/mid/on-demand"]
    assert taken(planned([job(cpu_count=1, memory_bytes=33 * GIB)], sold)) == [
        "reg-c/large/on-demand"
    ]
    assert taken(planned([job(gpus=1)], sold)) == ["reg-c/m1/on-demand"]


def test_where_all_machines_are_too_small_the_largest_speaks_and_else_none() -> None:
    told = only_refusal(job(cpu_count=64), *PLAIN)
    assert (told.code, told.detail) == (
        "cpu",
        "cloud region our-cloud (east): on-demand large (32 CPUs): asked 64 CPUs, has 32",
    )
    dear = job(cpu_count=9, price_cap_microcredits_per_hour=1)
    assert only_refusal(dear, *PLAIN).code == "price"


def test_the_limit_of_a_gpus_price_says_nothing_of_a_machine_without_gpus() -> None:
    asked = job(cpu_count=4, max_price_microcredits_per_gpu_hour=1)
    assert taken(planned([asked], market(*PLAIN))) == ["reg-c/mid/on-demand"]
    assert machine_cap(PLAIN[1], asked.demand) is None
    capped = job(cpu_count=4, worker_count=2, price_cap_microcredits_per_hour=700_000)
    assert machine_cap(PLAIN[1], capped.demand) == 350_000


def test_the_disk_that_a_job_asks_for_counts_in_choice_price_and_cap() -> None:
    """A thousand GB, and 50 for the image, at 0.73 credits a GB and month: 1.05 an hour."""
    cheap_disks = cloud_offer("m2", region_id="reg-d", microcredits_per_hour=2_900_000)
    sold = market(cloud_offer(disk_microcredits_per_gb_month=730_000), cheap_disks)
    small, large = job(gpus=1, disk_size_gb=10), job("job-2", gpus=1, disk_size_gb=1000)
    by_job = {burst.job_id: burst for burst in planned([small, large], sold).bursts}
    assert by_job[small.job_id].offer_id == "reg-c/m1/on-demand"
    assert {zone.microcredits_per_hour for zone in by_job[small.job_id].zones} == {2_060_000}
    assert by_job["job-2"].offer_id == "reg-d/m2/on-demand"
    (first, _) = rank(small.demand, (), sold).items
    assert (first.microcredits_per_hour, first.microcredits_per_gpu_hour) == (2_310_000, 2_310_000)
    limit = job(gpus=1, max_price_microcredits_per_gpu_hour=2_309_999)
    dear = cloud_offer(disk_microcredits_per_gb_month=730_000)
    assert only_refusal(limit, dear).code == "price"


def test_the_cheapest_is_made_spot_or_not() -> None:
    sold = market(cloud_offer(), SPOT, cloud_offer("dear", microcredits_per_hour=3_000_000))
    assert taken(planned([job(gpus=1)], sold)) == ["reg-c/spotty/spot"]
    never = job(gpus=1, spot=SpotPolicy.NEVER)
    assert taken(planned([never], sold)) == ["reg-c/m1/on-demand"]


def test_a_larger_type_serves_where_it_is_cheaper() -> None:
    larger = cloud_offer("big", gpu_type="A100-80GB", microcredits_per_hour=1_500_000)
    assert taken(planned([job(gpus=1)], market(cloud_offer(), larger))) == ["reg-c/big/on-demand"]


def test_nothing_of_another_account_is_sold_or_told() -> None:
    made = planned([job(gpus=1)], market(cloud_offer(account_id=OTHER)))
    assert made.bursts == ()
    assert [refusal.code for refusal in made.refused[0].refusals] == ["no-offers"]


def test_nodes_that_are_there_come_before_all_but_preferred_providers() -> None:
    dear = offer(gpus=1, microcredits_per_gpu_hour=9_000_000)
    assert taken(planned([job(gpus=1)], market(SPOT), dear)) == []
    first = market(SPOT, preferred=("prv-c",))
    assert taken(planned([job(gpus=1)], first, dear)) == [SPOT.offer_id]
    idle = offer("cloudy", gpus=1, provider_id="prv-c", preferred=True)
    made = planned([job(gpus=1)], first, dear, idle)
    assert [slot.node_id for slot in made.assignments[0].slots] == ["cloudy"]


def test_a_preferred_provider_comes_before_a_cheaper_one() -> None:
    other = cloud_offer("cheap", region_id="reg-d", provider_id="prv-d", microcredits_per_hour=1)
    sold = market(cloud_offer(), other, preferred=("prv-c",))
    assert taken(planned([job(gpus=1)], sold)) == ["reg-c/m1/on-demand"]


def test_a_zone_that_has_none_is_left_out_and_with_none_left_it_is_said_why_and_until_when() -> (
    None
):
    one = market(cloud_offer(), short={"east-a": "out of stock"})
    (burst,) = planned([job(gpus=1)], one).bursts
    assert [zone.zone for zone in burst.zones] == ["east-b"]
    refusal = only_refusal(job(gpus=1), cloud_offer(), short=FULL)
    assert (refusal.code, refusal.ever) == ("shortage", True)
    assert refusal.detail == (
        "cloud region our-cloud (east): on-demand m1 (1×A100): out of stock; "
        "not asked again before 12:59:00 UTC"
    )


def test_out_of_quota_a_job_goes_elsewhere_or_fails_as_it_is_told() -> None:
    elsewhere = cloud_offer(region_id="reg-d", cloud_region="west", microcredits_per_hour=2_500_000)
    sold = market(cloud_offer(), elsewhere, short=NO_QUOTA)
    assert taken(planned([job(gpus=1)], sold)) == ["reg-d/m1/on-demand"]
    made = planned([job(gpus=1, fails_on_quota=True)], sold)
    assert (made.bursts, made.refused) == ((), ())
    (failed,) = made.failed
    assert [refusal.code for refusal in failed.refusals] == ["quota"]
    cheaper = cloud_offer(region_id="reg-d", cloud_region="west", microcredits_per_hour=1)
    served = market(cloud_offer(), cheaper, short=NO_QUOTA)
    assert len(planned([job(gpus=1, fails_on_quota=True)], served).bursts) == 1


def test_out_of_quota_alone_fails_no_job_whose_price_it_was_beyond() -> None:
    poor = job(gpus=1, fails_on_quota=True, max_price_microcredits_per_gpu_hour=1)
    made = planned([poor], market(cloud_offer(), short=NO_QUOTA))
    assert made.failed == ()
    assert [refusal.code for refusal in made.refused[0].refusals] == ["price"]


def test_every_reason_of_a_region_is_told_beside_those_of_the_nodes() -> None:
    asked = job(gpus=1, max_price_microcredits_per_gpu_hour=2_000_000)
    made = planned([asked], market(cloud_offer(), SPOT, short=FULL), offer(gpus=1, free=0))
    assert [refusal.code for refusal in made.refused[0].refusals] == [
        "gpu-count", "shortage", "price",
    ]  # fmt: skip


def test_what_is_ranked_is_what_would_be_taken_first() -> None:
    sold = market(cloud_offer(), SPOT, short={"east-a": "none"})
    found = rank(job(gpus=1).demand, [offer(gpus=1), offer("full", gpus=1, free=0)], sold)
    assert found.placeable
    assert [item.offer_id for item in found.items] == [
        "n1", "reg-c/spotty/spot", "reg-c/m1/on-demand",
    ]  # fmt: skip
    spot = found.items[1]
    assert (spot.machine_type, spot.spot, spot.zones) == ("spotty", True, ("east-b",))
    assert (spot.microcredits_per_hour, spot.price_is_estimate) == (1_250_000, True)
    assert [refusal.offer_id for refusal in found.refusals] == ["full"]


def test_what_is_ranked_has_preferred_nodes_and_then_preferred_clouds_first() -> None:
    idle = offer("cloudy", gpus=1, provider_id="prv-c", preferred=True)
    found = rank(job(gpus=1).demand, [offer(gpus=1), idle], market(SPOT, preferred=("prv-c",)))
    assert [(item.offer_id, item.preferred) for item in found.items] == [
        ("cloudy", True), ("reg-c/spotty/spot", True), ("n1", False),
    ]  # fmt: skip


def test_a_job_is_placeable_where_its_machines_can_be_made() -> None:
    asked = job(gpus=1, worker_count=5).demand
    assert rank(asked, [offer(gpus=1)], market(SPOT)).placeable
    assert not rank(asked, [offer(gpus=1)], market(SPOT, short=FULL)).placeable


def ask(number: int) -> CloudOffer:
    """An offer of Vast.ai, which is one machine, dearer by its number."""
    price = 1_000_000 + number
    machine = MachineOffer(
        zone="us",
        machine_type="ask",
        gpu_type="A100",
        gpu_count=1,
        microcredits_per_hour=price,
        provider_offer_id=str(number),
    )
    return cloud_offer(
        str(number), provider_kind="vastai", zones=(machine,), microcredits_per_hour=price
    )


def test_an_offer_that_is_one_machine_is_for_one_job_of_a_round() -> None:
    jobs = [job(f"job-{number}", gpus=1, age_s=9 - number) for number in range(3)]
    sold = market(ask(1), ask(2))
    made = planned(jobs, sold)
    assert taken(made) == [f"reg-c/{number}/on-demand" for number in (1, 2)]
    (refusal,) = made.refused[0].refusals
    assert refusal.code == "shortage"
    assert "another job gets it" in refusal.detail
    assert taken(planned(jobs[2:], sold)) == ["reg-c/1/on-demand"], "of the next round"
