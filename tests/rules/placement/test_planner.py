"""Placement by example: what goes where, in which order, and what is said to the rest."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.rules.placement.offers import (
    GIB,
    NOW,
    OTHER,
    OWNER,
    THIRD,
    by_demand,
    guest,
    job,
    key_of,
    offer,
    public,
)
from workflows.contracts.placement import NodeOffer, PendingJob, Plan, Refusal
from workflows.rules.placement.inventory import Inventory
from workflows.rules.placement.node_refusals import LISTED_NODES
from workflows.rules.placement.planner import STARVATION_LIMIT, PlanningContext, plan
from workflows.rules.placement.ranking import rank

OVERDUE_S = STARVATION_LIMIT.total_seconds()


def planned(jobs: list[PendingJob], offers: list[NodeOffer], **situation: Any) -> Plan:
    return plan(by_demand(jobs), offers, PlanningContext(now=NOW, **situation))


def placed(made: Plan) -> dict[str, list[str]]:
    """Job to the nodes of its workers."""
    return {a.job_id: [slot.node_id for slot in a.slots] for a in made.assignments}


def refusal(asked: PendingJob, *offers: NodeOffer) -> Refusal:
    """The only refusal of a job that does not fit."""
    made = planned([asked], list(offers))
    assert made.assignments == ()
    (only,) = made.refused[0].refusals
    return only


def test_a_job_gets_the_lowest_free_gpus() -> None:
    (assignment,) = planned([job(gpus=2)], [offer(gpus=4)]).assignments
    assert assignment.slots[0].gpu_indices == (0, 1)


@pytest.mark.parametrize(
    ("asked", "node", "code", "ever"),
    [
        (job(gpus=4), offer(gpus=4, free=2), "gpu-count", True),
        (job(gpus=4), offer(gpus=2), "gpu-count", False),
        (job(gpus=1), offer(gpus=1, gpu_type="T4"), "gpu-type", False),
        (job(gpus=1), offer(), "gpu-type", False),
        (job(cpu_count=8), offer(free_cpu_count=3), "cpu", True),
        (job(cpu_count=17), offer(), "cpu", False),
        (job(memory_bytes=8 * GIB), offer(free_memory_bytes=GIB), "memory", True),
        (job(memory_bytes=65 * GIB), offer(), "memory", False),
        (job(disk_size_gb=100), offer(free_disk_bytes=99 * 1000**3), "disk", True),
        (job(), offer(active=False), "inactive", True),
        (job(region_id="reg-2"), offer(), "wrong-region", False),
        (job(providers=("gcp",)), offer(), "provider", False),
        (job(needs_image=True), offer(), "image", False),
        (job(port=8888), offer(used_ports=(8888,)), "port", True),
        (guest(only_owned=True), public(), "not-owned", False),
        (guest(), public(trusted_only=True), "not-owned", False),
        (guest(), public(market_microcredits_per_gpu_hour=None), "not-sold", False),
        (guest(needs_image=False), public(), "containers", False),
        (guest(max_price_microcredits_per_gpu_hour=2_770_000), public(), "price", False),
        (guest(), public(free=0), "gpu-count", True),
        (
            job(needs_apt_packages=True),
            offer(has_run_roots=False),
            "apt-packages",
            False,
        ),
        (
            job(gpus=1, max_price_microcredits_per_gpu_hour=1),
            offer(gpus=1, microcredits_per_gpu_hour=2),
            "price",
            False,
        ),
        (
            job(gpus=2, worker_count=2, price_cap_microcredits_per_hour=7),
            offer(gpus=4, microcredits_per_gpu_hour=2),
            "price",
            False,
        ),
        (
            job(cpu_count=2, price_cap_microcredits_per_hour=5),
            offer(microcredits_per_cpu_core_hour=3),
            "price",
            False,
        ),
        (
            job(gpus=1, has_credits=False),
            offer(gpus=1, microcredits_per_gpu_hour=2),
            "credits",
            False,
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_code(
    asked: PendingJob, node: NodeOffer, code: str, ever: bool
) -> None:
    found = refusal(asked, node)
    assert (found.offer_id, found.code, found.ever) == ("n1", code, ever)


def test_a_job_within_its_cap_and_one_without_credits_that_costs_nothing_are_placed() -> None:
    capped = job("job-1", gpus=2, worker_count=2, price_cap_microcredits_per_hour=8)
    free = job("job-2", has_credits=False, price_cap_microcredits_per_hour=0)
    made = planned([capped, free], [offer(gpus=4, microcredits_per_gpu_hour=2)])
    assert placed(made) == {"job-1": ["n1", "n1"], "job-2": ["n1"]}


def test_a_job_that_costs_nothing_is_not_placed_when_nobody_can_pay_its_federated_fee() -> None:
    owing = job("job-1", gpus=2, has_credits=False, has_fee_credits=False)
    made = planned([owing, job("job-2", has_credits=False)], [offer(gpus=4)])
    assert placed(made) == {"job-2": ["n1"]}
    assert refusal(owing, offer(gpus=4)).code == "credits"


def test_no_node_is_kept_free_for_a_job_that_its_payer_cannot_pay() -> None:
    node = offer(gpus=2, free=1, microcredits_per_gpu_hour=2)
    waits = job("job-1", gpus=2, age_s=OVERDUE_S, has_credits=False)
    assert placed(planned([waits, job("job-2", gpus=1)], [node])) == {"job-2": ["n1"]}


def test_a_refusal_carries_the_numbers() -> None:
    assert refusal(job(gpus=4), offer(gpus=4, free=2)).detail == (
        "node n1: asked 4×A100, 2 free of 4"
    )
    assert "asked 8 CPUs, 3 free of 16" in refusal(job(cpu_count=8), offer(free_cpu_count=3)).detail


def test_without_any_node_that_is_the_reason() -> None:
    assert refusal(job()).code == "no-offers"


def test_of_private_nodes_of_others_nothing_is_told() -> None:
    assert refusal(job(), offer("secret", account_id=OTHER)).code == "no-offers"


def test_a_trusted_only_node_runs_its_owners_jobs() -> None:
    assert placed(planned([job()], [offer(trusted_only=True)])) == {"job-1": ["n1"]}


def test_packages_need_a_node_with_run_roots_or_one_that_keeps_them() -> None:
    asked = job(needs_apt_packages=True)
    assert placed(planned([asked], [offer()]))
    without = offer(has_run_roots=False)
    assert not placed(planned([asked], [without]))
    assert placed(planned([job()], [without]))
    assert placed(planned([asked], [without.model_copy(update={"allows_apt_packages": True})]))
    told = refusal(asked, offer(has_run_roots=False)).detail
    assert told.startswith("node n1: cannot install environment.apt_packages for one job alone. ")
    for part in ("environment.image", "region home", "allows_apt_packages"):
        assert part in told


def test_a_federated_job_is_placed_only_where_its_runs_can_be_confined() -> None:
    weak = offer("weak", no_confinement_reason="no tmpfs", no_attestation_reason="is no SEV-SNP")
    plain = offer("plain", no_attestation_reason="is no SEV-SNP")
    proving = offer("proving")
    federated = job(needs_confinement=True)
    attested = job(needs_confinement=True, needs_attestation=True)
    assert placed(planned([job()], [weak])) == {"job-1": ["weak"]}
    assert placed(planned([federated], [weak])) == {}
    assert placed(planned([federated], [weak, plain])) == {"job-1": ["plain"]}
    assert placed(planned([attested], [weak, plain])) == {}
    assert placed(planned([attested], [weak, plain, proving])) == {"job-1": ["proving"]}
    (refused,) = planned([attested], [weak, plain]).refused
    codes = [each.code for each in refused.refusals]
    assert sorted(codes) == ["attestation", "confinement"]


def test_a_refusal_counts_in_the_singular_too() -> None:
    told = refusal(job(cpu_count=1), offer(free_cpu_count=0)).detail
    assert "asked 1 CPU, 0 free of 16" in told


def test_providers_may_be_named_by_kind_or_id() -> None:
    node = offer(provider_id="prv-1")
    assert placed(planned([job(providers=("physical",))], [node]))
    assert placed(planned([job(providers=("prv-1",))], [node]))


def test_an_a100_with_80_gb_serves_who_asks_for_an_a100() -> None:
    assert placed(planned([job(gpus=1)], [offer(gpus=1, gpu_type="A100-80GB")]))


def test_several_workers_may_share_a_node_and_are_placed_all_or_not_at_all() -> None:
    three = job(gpus=2, worker_count=3)
    assert placed(planned([three], [offer(gpus=8)])) == {"job-1": ["n1"] * 3}
    spread = placed(planned([three], [offer("n1", gpus=4), offer("n2", gpus=2)]))
    assert spread == {"job-1": ["n1", "n1", "n2"]}
    short = planned([three], [offer("n1", gpus=4), offer("n2", gpus=2, free=1)])
    assert short.assignments == ()
    assert {r.offer_id: (r.code, r.ever) for r in short.refused[0].refusals} == {
        "n1": ("workers", True),
        "n2": ("gpu-count", True),
    }


def test_workers_of_one_job_do_not_lie_in_two_regions() -> None:
    two = job(gpus=1, worker_count=2)
    offers = [offer("n1", gpus=1), offer("n2", gpus=1, region_id="reg-2")]
    assert placed(planned([two], offers)) == {}


def test_workers_are_of_one_gpu_type_where_that_is_possible() -> None:
    two = job(gpus=1, worker_count=2, gpu_types=("A100", "H100"))
    a100, h100 = offer("a", gpus=1), offer("h", gpus=1, gpu_type="H100")
    assert sorted(placed(planned([two], [a100, h100]))["job-1"]) == ["a", "h"]
    pair = offer("p", gpus=2, gpu_type="H100")
    assert placed(planned([two], [a100, h100, pair])) == {"job-1": ["p", "p"]}


def test_two_workers_that_listen_on_a_port_need_two_nodes() -> None:
    two = job(worker_count=2, port=8888)
    assert placed(planned([two], [offer()])) == {}
    assert placed(planned([two], [offer("n1"), offer("n2")])) == {"job-1": ["n1", "n2"]}


def test_own_nodes_come_before_others_cheaper_ones_and_cheap_before_dear() -> None:
    mine = offer("mine", gpus=1, runtimes=("podman",), microcredits_per_gpu_hour=9)
    theirs = public("theirs", gpus=1, market_microcredits_per_gpu_hour=1)
    cheap = offer("cheap", gpus=1, runtimes=("podman",), microcredits_per_gpu_hour=5)
    jobs = [guest(f"job-{i}", age_s=9 - i) for i in range(3)]
    assert list(placed(planned(jobs, [theirs, mine, cheap])).values()) == [
        ["cheap"],
        ["mine"],
        ["theirs"],
    ]


def test_small_jobs_fill_the_fullest_node() -> None:
    offers = [offer("empty", gpus=4), offer("part", gpus=4, free=1)]
    assert placed(planned([job(gpus=1)], offers)) == {"job-1": ["part"]}


def test_cpu_jobs_leave_gpu_nodes_alone_where_they_can() -> None:
    assert placed(planned([job()], [offer("gpu", gpus=4), offer("plain")])) == {"job-1": ["plain"]}


def test_gpu_jobs_without_cpus_share_them_so_that_all_gpus_can_work() -> None:
    jobs = [job(f"job-{i}", gpus=1, cpu_count=0) for i in range(4)]
    node = offer(gpus=4, cpu_count=6, free_cpu_count=6)
    assert len(placed(planned(jobs, [node]))) == 4


def test_priority_comes_first_then_age_within_a_project() -> None:
    jobs = [job("old", age_s=60), job("new", age_s=1), job("urgent", priority=1)]
    node = offer(free_cpu_count=1)
    assert placed(planned(jobs, [node])) == {"urgent": ["n1"]}
    assert placed(planned(jobs[:2], [node])) == {"old": ["n1"]}


def test_projects_take_turns_and_who_holds_least_is_first() -> None:
    many = [job(f"many-{i}", age_s=100 - i) for i in range(10)]
    few = [job(f"few-{i}", age_s=i, project_id="prj-2") for i in range(2)]
    chosen = placed(planned([*many, *few], [offer(free_cpu_count=4)]))
    assert sorted(chosen) == ["few-0", "few-1", "many-0", "many-1"]
    loaded = placed(planned([*many, *few], [offer(free_cpu_count=2)], held={"prj-1": 8}))
    assert sorted(loaded) == ["few-0", "few-1"]


def test_accounts_take_turns_and_who_holds_least_is_first() -> None:
    many = [guest(f"many-{i}", age_s=100 - i, project_id=f"prj-{i % 3}") for i in range(12)]
    few = [guest(f"few-{i}", age_s=i, account_id=THIRD, project_id="prj-few") for i in range(2)]
    both = public(gpus=4)
    assert sorted(placed(planned([*many, *few], [both]))) == ["few-0", "few-1", "many-0", "many-1"]
    loaded = planned([*many, *few], [public(gpus=2)], held={OWNER: 100})
    assert sorted(placed(loaded)) == ["few-0", "few-1"]


def test_the_priority_of_one_account_does_not_pass_the_jobs_of_another() -> None:
    urgent = [guest(f"urgent-{i}", priority=1) for i in range(3)]
    patient = [
        guest(f"patient-{i}", priority=5, age_s=9, account_id=THIRD, project_id="prj-2")
        for i in range(3)
    ]
    chosen = placed(planned([*urgent, *patient], [public(gpus=4)]))
    assert sorted(chosen) == ["patient-0", "patient-1", "urgent-0", "urgent-1"]


def test_a_demand_that_does_not_fit_costs_one_look_however_many_jobs_have_it() -> None:
    looked_at = []

    def line() -> Iterator[PendingJob]:
        for number in range(100_000):
            looked_at.append(number)
            yield job(f"big-{number}", gpus=8)

    (big,) = by_demand([job("big", gpus=8)])
    made = plan([replace(big, jobs=line())], [offer(gpus=4)], PlanningContext(now=NOW))
    assert [told.demand_key for told in made.refused] == [big.demand_key]
    assert looked_at == [0]


def test_a_job_that_does_not_fit_lets_later_ones_pass() -> None:
    jobs = [job("big", gpus=4, age_s=60), job("small", gpus=1)]
    assert placed(planned(jobs, [offer(gpus=4, free=2)])) == {"small": ["n1"]}


def test_after_long_waiting_the_nodes_that_it_needs_are_kept_free() -> None:
    jobs = [job("big", gpus=4, age_s=OVERDUE_S), job("small", gpus=1)]
    made = planned(jobs, [offer(gpus=4, free=2)])
    assert placed(made) == {}
    codes = {r.demand_key: r.refusals[0].code for r in made.refused}
    assert codes == {
        key_of(jobs[0].demand): "gpu-count",
        key_of(jobs[1].demand): "reserved",
    }


def test_an_urgent_job_is_not_held_up_by_one_that_waits_long() -> None:
    jobs = [job("big", gpus=4, age_s=OVERDUE_S), job("urgent", gpus=1, priority=1)]
    assert placed(planned(jobs, [offer(gpus=4, free=2)])) == {"urgent": ["n1"]}


def test_nothing_is_kept_free_for_what_can_never_fit() -> None:
    jobs = [job("huge", gpus=9, age_s=OVERDUE_S), job("small", gpus=1)]
    assert placed(planned(jobs, [offer(gpus=4, free=2)])) == {"small": ["n1"]}


def test_one_job_of_a_project_at_a_time_has_nodes_kept_free() -> None:
    big = [job(f"big-{i}", gpus=4, age_s=OVERDUE_S + 9 - i) for i in range(2)]
    offers = [offer("n1", gpus=4, free=2), offer("n2", gpus=4, free=2)]
    assert len(placed(planned([*big, job("small", gpus=1)], offers))) == 1


def test_an_offer_that_is_out_of_stock_is_not_there() -> None:
    assert placed(planned([job()], [offer()], shortages=frozenset({"n1"}))) == {}


def test_a_limit_stops_the_round_and_says_nothing_of_the_rest() -> None:
    made = planned([job(f"job-{i}", age_s=9 - i) for i in range(3)], [offer()], limit=1)
    assert (list(placed(made)), made.refused) == (["job-0"], ())


def test_who_sees_many_nodes_is_told_by_region_and_reason() -> None:
    offers = [offer(f"n{i}", gpus=4, free=i % 3) for i in range(LISTED_NODES + 1)]
    found = refusal(job(gpus=4), *offers)
    assert (found.offer_id, found.code) == ("reg-1", "gpu-count")
    assert f"{LISTED_NODES + 1} nodes" in found.detail
    assert "2 free of 4" in found.detail


def test_ranking_puts_the_node_that_placement_takes_first_and_says_why_not_the_others() -> None:
    offers = [
        offer("dear", gpus=2, microcredits_per_gpu_hour=3),
        offer("cheap", gpus=2, microcredits_per_gpu_hour=2),
        offer("full", gpus=2, free=0),
    ]
    ranking = rank(job(gpus=2).demand, offers)
    assert ranking.placeable
    assert [item.offer_id for item in ranking.items] == ["cheap", "dear"]
    assert ranking.items[0].microcredits_per_hour == 4
    assert [(r.offer_id, r.code) for r in ranking.refusals] == [("full", "gpu-count")]


def test_ranking_of_too_many_workers_shows_what_fits_and_is_not_placeable() -> None:
    ranking = rank(job(gpus=2, worker_count=3).demand, [offer(gpus=4)])
    assert not ranking.placeable
    assert [item.workers_that_fit for item in ranking.items] == [2]
    assert [r.code for r in ranking.refusals] == ["workers"]


def test_a_job_waits_while_another_one_holds_its_reservation_and_is_told_which() -> None:
    asked = job(port=8888, reservation_id="rsv-1", region_id="reg-1")
    held = {"rsv-1": "reservation web: job first (job-9) holds it"}
    made = planned([asked], [offer()], reservations=held)
    (only,) = made.refused[0].refusals
    assert (made.assignments, only.code, only.ever) == ((), "reservation", True)
    assert (only.offer_id, only.region_id, only.detail) == ("rsv-1", "reg-1", held["rsv-1"])


def test_ranking_names_who_holds_the_reservation_and_no_node() -> None:
    held = {"rsv-1": "reservation web: job first (job-9) holds it"}
    asked = job(port=8888, reservation_id="rsv-1").demand
    found = rank(asked, Inventory([offer()], held))
    assert (found.placeable, found.items) == (False, ())
    assert [each.detail for each in found.refusals] == [held["rsv-1"]]
    assert rank(asked, Inventory([offer()])).placeable


def test_of_two_jobs_with_one_reservation_one_is_placed() -> None:
    jobs = [job(f"job-{n}", age_s=9 - n, port=8888, reservation_id="rsv-1") for n in (1, 2)]
    made = planned(jobs, [offer("n1"), offer("n2")])
    assert placed(made) == {"job-1": ["n1"]}
    (only,) = made.refused[0].refusals
    assert only.detail == "reservation rsv-1: job job-1 holds it"


def test_jobs_with_other_reservations_or_none_are_not_held_up() -> None:
    jobs = [
        job("job-1", port=8888, reservation_id="rsv-1"),
        job("job-2", port=8888, reservation_id="rsv-2"),
        job("job-3"),
    ]
    made = planned(jobs, [offer("n1"), offer("n2")], reservations={"rsv-9": "held"})
    assert sorted(placed(made)) == ["job-1", "job-2", "job-3"]


def test_no_node_is_kept_free_for_a_job_that_waits_for_a_reservation() -> None:
    asked = job("job-1", age_s=OVERDUE_S, gpus=4, port=8888, reservation_id="rsv-1")
    later = job("job-2", gpus=4)
    made = planned([asked, later], [offer(gpus=4)], reservations={"rsv-1": "held"})
    assert placed(made) == {"job-2": ["n1"]}
