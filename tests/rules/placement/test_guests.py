"""Guests: jobs on what the owner of a public region leaves, at the market price."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

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
from workflows.contracts.placement import NodeOffer, PendingJob, Plan, RunningGuest
from workflows.contracts.regions import GuestPolicy
from workflows.rules.placement.cloud_market import NO_MARKET, Market
from workflows.rules.placement.guests import takes_guests_at
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


def under(policy: GuestPolicy, **changes: Any) -> NodeOffer:
    return public(gpus=4, guest_policy=policy, **changes)


def test_a_policy_lets_in_the_jobs_of_its_accounts_and_projects_alone() -> None:
    jobs = [guest(), guest("third", account_id=THIRD, project_id="prj-3")]
    named = [
        each.model_copy(update={"demand": replace(each.demand, project_id=each.project_id)})
        for each in jobs
    ]
    for policy, expected in (
        (GuestPolicy(accounts=(THIRD,)), {"third"}),
        (GuestPolicy(projects=("prj-1",)), {"job-1"}),
        (GuestPolicy(accounts=(THIRD,), projects=("prj-1",)), {"third", "job-1"}),
        (GuestPolicy(accounts=("acc-nobody",)), set()),
    ):
        made = planned(named, [under(policy)])
        assert set(placed(made)) == expected
        assert not made.refused or codes(made) == {"no-offers"}


def test_the_jobs_of_the_owner_need_no_policy() -> None:
    policy = GuestPolicy(accounts=("acc-nobody",), most_gpus=1)
    made = planned([of_owner("own", gpus=4)], [under(policy, guests_now=False)])
    assert placed(made) == {"own": "n1"}


def test_guests_hold_no_more_gpus_than_the_policy_lets_them() -> None:
    policy = GuestPolicy(most_gpus=3)
    jobs = [guest(f"job-{i}", gpus=1, age_s=9 - i) for i in range(3)]
    made = planned(jobs, [under(policy, guest_gpu_count=1)])
    assert set(placed(made)) == {"job-0", "job-1"}
    (refusal,) = made.refused[0].refusals
    words = "asked 1 GPU as a guest, its region lets guests have 3, who hold 3"
    assert (refusal.code, refusal.ever) == ("guest-limit", True)
    assert refusal.detail == f"public node n1: {words}"
    large = planned([guest(gpus=4)], [under(policy)]).refused[0].refusals[0]
    assert (large.code, large.ever) == ("guest-limit", False)


@pytest.mark.parametrize(
    ("since", "until", "open_hours"),
    [
        (None, None, set(range(24))),
        (22, 6, {22, 23, 0, 1, 2, 3, 4, 5}),
        (9, 17, set(range(9, 17))),
        (0, 1, {0}),
    ],
)
def test_guests_are_placed_at_the_hours_of_the_policy(
    since: int | None, until: int | None, open_hours: set[int]
) -> None:
    policy = GuestPolicy(from_hour=since, until_hour=until)
    found = {hour for hour in range(24) if takes_guests_at(policy, NOW.replace(hour=hour))}
    assert found == open_hours
    made = planned([guest()], [under(GuestPolicy(from_hour=22, until_hour=6), guests_now=False)])
    (refusal,) = made.refused[0].refusals
    assert (refusal.code, refusal.ever) == ("guest-hours", True)
    assert refusal.detail == "public node n1: takes guests from 22:00 to 6:00 UTC"


def running(job_id: str, age_s: int, node_id: str = "n1", **changes: Any) -> RunningGuest:
    made: dict[str, Any] = {"gpu_count": 1, "cpu_count": 1, "memory_bytes": 0}
    since = NOW - timedelta(seconds=age_s)
    return RunningGuest(job_id=job_id, node_id=node_id, since=since, **(made | changes))


PREEMPTS = GuestPolicy(preemption_notice_s=600)


def preempted(jobs: list[PendingJob], offers: list[NodeOffer], *guests: RunningGuest) -> set[str]:
    context = PlanningContext(now=NOW, guests=guests)
    return set(plan(by_demand(jobs), offers, context).preempted)


def test_the_newest_guests_leave_for_a_job_of_the_owner_and_no_more_than_it_needs() -> None:
    node = under(PREEMPTS, free=1)
    guests = [running("old", 99), running("new", 1), running("middle", 50)]
    assert preempted([of_owner("own", gpus=2)], [node], *guests) == {"new"}
    assert preempted([of_owner("own", gpus=3)], [node], *guests) == {"new", "middle"}
    assert preempted([of_owner("own", gpus=1)], [node], *guests) == set()
    assert preempted([of_owner("own", gpus=5)], [node], *guests) == set()
    assert preempted([guest("other", gpus=2)], [node], *guests) == set()


def test_no_guest_is_preempted_where_the_policy_does_not_say_so() -> None:
    node = under(GuestPolicy(), free=0)
    assert preempted([of_owner("own")], [node], running("new", 1)) == set()


def test_guests_with_their_notice_are_counted_on_and_none_is_added() -> None:
    node = under(PREEMPTS, free=0)
    guests = [running("old", 99, noticed=True), running("new", 1)]
    assert preempted([of_owner("own")], [node], *guests) == set()
    both = [of_owner("own-1"), of_owner("own-2", cpu_count=2)]
    other = under(PREEMPTS, free=0).model_copy(update={"node_id": "n2"})
    assert preempted(both, [node, other], *guests, running("there", 5, "n2")) == {"there"}


def withdrawn(jobs: list[PendingJob], offers: list[NodeOffer], *guests: RunningGuest) -> set[str]:
    context = PlanningContext(now=NOW, guests=guests)
    return set(plan(by_demand(jobs), offers, context).withdrawn)


def test_a_notice_is_withdrawn_that_no_waiting_job_of_the_owner_needs() -> None:
    node = under(PREEMPTS, free=0)
    guests = [running("old", 99, noticed=True), running("new", 1, noticed=True)]
    assert withdrawn([], [node], *guests) == {"old", "new"}
    assert withdrawn([of_owner("own", gpus=1)], [node], *guests) == {"old"}
    assert withdrawn([of_owner("own", gpus=2)], [node], *guests) == set()
    assert withdrawn([guest("other", gpus=2)], [node], *guests) == {"old", "new"}
    assert withdrawn([], [node], running("unnoticed", 1)) == set()


def test_no_notice_is_withdrawn_while_a_node_of_the_guest_is_not_active() -> None:
    node, other = under(PREEMPTS, free=0), under(PREEMPTS, free=0)
    away = other.model_copy(update={"node_id": "n2", "active": False})
    both = [running("both", 9, noticed=True), running("both", 9, "n2", noticed=True)]
    assert withdrawn([], [node, away], *both) == set()
    assert withdrawn([], [node, away], running("here", 9, noticed=True)) == {"here"}


def test_a_notice_stands_though_a_guest_without_one_would_do_in_another_region() -> None:
    first = under(PREEMPTS, free=0).model_copy(update={"node_id": "n1", "region_id": "a"})
    other = under(PREEMPTS, free=0).model_copy(update={"node_id": "n2", "region_id": "b"})
    guests = [running("new", 1, "n1"), running("noticed", 9, "n2", noticed=True)]
    assert withdrawn([of_owner("own")], [first, other], *guests) == set()
    assert preempted([of_owner("own")], [first, other], *guests) == set()


def test_the_node_with_the_fewest_guests_to_leave_is_chosen() -> None:
    nodes = [
        under(PREEMPTS, free=0),
        under(PREEMPTS, free=0).model_copy(update={"node_id": "n2"}),
    ]
    guests = [running("a", 1), running("b", 2), running("whole", 9, "n2", gpu_count=2)]
    assert preempted([of_owner("own", gpus=2)], nodes, *guests) == {"whole"}


def test_a_guest_whose_leaving_gives_no_room_stays() -> None:
    node = under(PREEMPTS, free=0, free_cpu_count=8)
    guests = [running("gpu", 99), running("cpus", 1, gpu_count=0, cpu_count=4)]
    assert preempted([of_owner("own")], [node], *guests) == {"gpu"}
    guests = [running("gpu", 1), running("cpus", 99, gpu_count=0, cpu_count=4)]
    assert preempted([of_owner("own")], [node], *guests) == {"gpu"}


def test_workers_of_one_job_may_need_several_nodes() -> None:
    nodes = [
        public("n1", 1, free=0, guest_policy=PREEMPTS),
        public("n2", 1, free=0, guest_policy=PREEMPTS),
    ]
    guests = [running("one", 1), running("two", 1, "n2")]
    wanted = [of_owner("own", worker_count=2)]
    assert preempted(wanted, nodes, *guests) == {"one", "two"}
    assert preempted(wanted, nodes[:1], guests[0]) == set()
