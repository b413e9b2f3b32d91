"""Guests: jobs on what the owner of a public region leaves, at the market price."""

from typing import Any

from tests.rules.placement.cloud_offers import cloud_offer, market
from tests.rules.placement.offers import (
    MARKET_PRICE,
    NOW,
    OTHER,
    OWNER,
    THIRD,
    by_demand,
    guest,
    job,
    offer,
    public,
)
from workflows.contracts.placement import NodeOffer, PendingJob, Plan
from workflows.rules.placement.cloud_market import NO_MARKET, Market
from workflows.rules.placement.planner import PlanningContext, plan


def planned(
    jobs: list[PendingJob],
    offers: list[NodeOffer],
    sold: Market = NO_MARKET,
    limit: int | None = None,
) -> Plan:
    return plan(by_demand(jobs), offers, PlanningContext(now=NOW, market=sold, limit=limit))


def placed(made: Plan) -> dict[str, str]:
    return {each.job_id: each.slots[0].node_id for each in made.assignments}


def codes(made: Plan) -> set[str]:
    return {refusal.code for each in made.refused for refusal in each.refusals}


def of_owner(job_id: str, gpus: int = 1, **changes: Any) -> PendingJob:
    return job(job_id, gpus, account_id=OTHER, project_id="prj-of-owner", **changes)


def test_a_guest_gets_what_the_owners_queue_leaves_whoever_came_first() -> None:
    jobs = [guest("guest-1", age_s=99), guest("guest-2", age_s=98), of_owner("own")]
    made = planned(jobs, [public(gpus=2)])
    assert placed(made) == {"own": "n1", "guest-1": "n1"}
    assert codes(made) == {"gpu-count"}


def test_a_node_that_a_job_of_its_owner_waits_for_takes_no_guest() -> None:
    jobs = [guest(age_s=99), of_owner("own", gpus=4)]
    made = planned(jobs, [public(gpus=4, free=3)])
    assert placed(made) == {}
    assert codes(made) == {"owner-first", "gpu-count"}


def test_a_job_of_the_owner_that_the_node_could_never_run_keeps_no_guest_off() -> None:
    jobs = [guest(), of_owner("own", gpus=8)]
    assert placed(planned(jobs, [public(gpus=4)])) == {"job-1": "n1"}


def test_no_guest_is_placed_in_a_round_that_has_not_considered_all_jobs() -> None:
    jobs = [guest(age_s=99), of_owner("own-1"), of_owner("own-2")]
    assert placed(planned(jobs, [public(gpus=4)], limit=2)) == {"own-1": "n1", "own-2": "n1"}


def test_guests_take_turns_and_each_job_is_placed_once() -> None:
    jobs = [guest(f"job-{i}", age_s=9 - i) for i in range(3)]
    jobs += [guest(f"third-{i}", account_id=THIRD, project_id="prj-3") for i in range(3)]
    assert sorted(placed(planned(jobs, [public(gpus=4)]))) == [
        "job-0",
        "job-1",
        "third-0",
        "third-1",
    ]


def test_the_cheaper_of_public_capacity_and_an_own_cloud_is_taken() -> None:
    fee = 250_000
    for price, is_burst in ((MARKET_PRICE - fee - 1, True), (MARKET_PRICE - fee, False)):
        sold = market(cloud_offer(gpus=1, microcredits_per_hour=price))
        made = planned([guest()], [public()], sold)
        assert (bool(made.bursts), bool(made.assignments)) == (is_burst, not is_burst)


def test_own_nodes_come_first_and_a_preferred_cloud_before_public_capacity() -> None:
    mine = offer("mine", gpus=1, runtimes=("podman",), microcredits_per_gpu_hour=9_000_000)
    assert placed(planned([guest()], [mine, public()])) == {"job-1": "mine"}
    sold = market(cloud_offer(gpus=1, microcredits_per_hour=9_000_000), preferred=("prv-c",))
    assert planned([guest()], [public()], sold).bursts


def test_nothing_is_kept_free_for_a_guest() -> None:
    jobs = [guest("large", gpus=4, age_s=9999), guest("small", age_s=1, project_id="prj-2")]
    assert placed(planned(jobs, [public(gpus=4, free=2)])) == {"small": "n1"}


def test_a_job_without_gpus_learns_nothing_of_public_regions() -> None:
    assert codes(planned([job(needs_image=True)], [public()])) == {"no-offers"}


def test_a_refusal_does_not_show_the_name_of_anothers_node() -> None:
    named = public(free=0, node_name="in the cellar of Ada")
    made = planned([guest()], [named])
    (refusal,) = made.refused[0].refusals
    assert refusal.detail == "public node n1: asked 1×A100, 0 free of 1"


def test_the_price_differs_by_who_looks() -> None:
    node = public(microcredits_per_gpu_hour=250_000)
    most = 300_000
    mine = of_owner("own", max_price_microcredits_per_gpu_hour=most)
    others = guest(max_price_microcredits_per_gpu_hour=most)
    made = planned([mine, others], [node, node.model_copy(update={"node_id": "n2"})])
    assert list(placed(made)) == ["own"]
    assert codes(made) == {"price"}
    assert OWNER != OTHER
