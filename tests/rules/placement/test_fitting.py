"""What fits, what it costs, and what an offer shows of itself."""

from datetime import date
from typing import Any

import pytest

from tests.rules.placement.cloud_offers import cloud_offer, market
from tests.rules.placement.offers import (
    GIB,
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
from workflows.contracts.billing import UsageRates
from workflows.contracts.machines import MachineOffer
from workflows.contracts.placement import Demand, NodeOffer
from workflows.rules.placement.cloud_costs import (
    boot_disk_gb,
    gpu_hour_cost,
    is_too_dear,
    machine_cap,
    machine_cost,
    priced_zones,
    worker_cost,
)
from workflows.rules.placement.cloud_market import NO_MARKET, spec_of
from workflows.rules.placement.cloud_refusals import being_made
from workflows.rules.placement.fair_share import weight
from workflows.rules.placement.inventory import Inventory, NodeCapacity, reserved_cpus
from workflows.rules.placement.node_refusals import NOTHING_THERE
from workflows.rules.placement.planner import PlanningContext, plan
from workflows.rules.placement.ranking import rank


def capacity_of(node: NodeOffer) -> NodeCapacity:
    (machine,) = Inventory([node]).regions[0].machines()
    return machine


def demand(gpus: int = 0, **changes: Any) -> Demand:
    return job(gpus=gpus, **changes).demand


@pytest.mark.parametrize(
    ("asked_cpus", "asked_gpus", "cpus", "gpus", "held"),
    [
        (3, 1, 16, 4, 3),
        (0, 0, 16, 4, 1),
        (0, 1, 16, 4, 4),
        (0, 1, 15, 4, 3),
        (0, 1, 2, 4, 1),
        (0, 2, 16, 4, 8),
        (0, 1, 16, 0, 16),
    ],
)
def test_a_worker_holds_its_cpus_or_the_share_of_its_gpus(
    asked_cpus: int, asked_gpus: int, cpus: int, gpus: int, held: int
) -> None:
    assert reserved_cpus(asked_cpus, asked_gpus, cpus, gpus) == held


@pytest.mark.parametrize(
    ("asked", "node", "free", "capacity"),
    [
        (demand(cpu_count=4, worker_count=9), offer(free_cpu_count=9), 2, 4),
        (demand(cpu_count=4, worker_count=1), offer(), 1, 1),
        (demand(1, worker_count=9), offer(gpus=4, free=3), 3, 4),
        (demand(memory_bytes=16 * GIB, worker_count=9), offer(free_memory_bytes=33 * GIB), 2, 4),
        (demand(port=80, worker_count=2), offer(), 1, 1),
        (demand(port=80), offer(used_ports=(80,)), 0, 1),
        (demand(disk_size_gb=400, worker_count=9), offer(), 2, 9),
        (demand(), offer(free_disk_bytes=-(10**12)), 0, 1),
        (demand(data_bytes=10**12), offer(disk_bytes=10**12), 0, 0),
        (demand(data_bytes=10**12), offer(disk_bytes=2 * 10**12), 1, 1),
        (demand(), offer(active=False), 0, 1),
        (demand(needs_image=True), offer(), 0, 0),
    ],
)
def test_a_node_has_free_slots_now_and_a_capacity_when_empty(
    asked: Demand, node: NodeOffer, free: int, capacity: int
) -> None:
    found = capacity_of(node)
    assert (found.free_slots(asked), found.capacity(asked)) == (free, capacity)
    found.held_for = "job-9"
    assert found.free_slots(asked) == 0


def test_what_a_worker_takes_is_gone() -> None:
    node = capacity_of(offer(gpus=4))
    asked = demand(2, cpu_count=3, memory_bytes=GIB, disk_size_gb=20, port=80)
    assert node.take(asked) == (0, 1)
    assert node.free_gpus == [2, 3]
    assert (node.free_cpus, node.free_memory_bytes) == (13, 63 * GIB)
    assert node.free_disk_bytes == 10**12 - 20 * 10**9
    assert node.used_ports == {80}


def test_a_worker_costs_its_gpus_and_its_cpus() -> None:
    priced: dict[str, Any] = {"microcredits_per_gpu_hour": 5, "microcredits_per_cpu_core_hour": 7}
    assert capacity_of(offer(gpus=2, **priced)).cost_per_hour(demand(2, cpu_count=3)) == 31
    free = capacity_of(offer(gpus=2))
    assert free.cost_per_hour(demand(2, cpu_count=3)) == 0
    assert not free.lacks_credits(demand(2, has_credits=False))
    cheap = capacity_of(offer(microcredits_per_cpu_core_hour=1))
    assert cheap.lacks_credits(demand(has_credits=False))
    assert not cheap.lacks_credits(demand())


def test_a_node_may_cost_exactly_what_a_job_pays() -> None:
    node = capacity_of(offer(gpus=4, microcredits_per_gpu_hour=10))
    for most, dear in ((10, False), (9, True)):
        assert node.is_too_dear(demand(1, max_price_microcredits_per_gpu_hour=most)) is dear
        asked = demand(1, max_price_microcredits_per_gpu_hour=most)
        assert node.admits(asked) is not dear
    for cap, dear in ((40, False), (39, True)):
        asked = demand(2, worker_count=2, price_cap_microcredits_per_hour=cap)
        assert node.is_too_dear(asked) is dear
        assert node.admits(asked) is not dear
    assert not node.is_too_dear(demand(max_price_microcredits_per_gpu_hour=1)), "it has no GPU"


def test_a_ranked_node_shows_what_it_has_and_costs() -> None:
    node = offer(
        gpus=4, free=3, free_cpu_count=9, free_memory_bytes=GIB, microcredits_per_gpu_hour=5,
        microcredits_per_cpu_core_hour=7, preferred=True,
    )  # fmt: skip
    (item,) = rank(demand(1, cpu_count=2, worker_count=4), [node]).items
    assert (item.offer_id, item.node_name, item.region_id, item.region_name) == (
        "n1", "n1", "reg-1", "home",
    )  # fmt: skip
    assert (item.provider_kind, item.owned, item.preferred) == ("physical", True, True)
    assert (item.gpu_type, item.gpu_count, item.free_gpu_count) == ("A100", 4, 3)
    assert (item.cpu_count, item.free_cpu_count) == (16, 9)
    assert (item.memory_bytes, item.free_memory_bytes) == (64 * GIB, GIB)
    assert item.workers_that_fit == 3
    assert (item.microcredits_per_gpu_hour, item.microcredits_per_hour) == (5, 19)
    (plain,) = rank(demand(), [offer()]).items
    assert (plain.owned, plain.gpu_type, plain.preferred) == (True, None, False)
    (theirs,) = rank(demand(1, needs_image=True), [public()]).items
    assert (theirs.owned, theirs.node_name) == (False, "")
    assert theirs.microcredits_per_gpu_hour == theirs.microcredits_per_hour == MARKET_PRICE


def test_a_ranked_cloud_offer_shows_what_would_be_created() -> None:
    sold = cloud_offer(gpus=2, spot=True, price_read_on=date(2026, 2, 1))
    (item,) = rank(demand(2, worker_count=3), [], market(sold, preferred=("prv-c",))).items
    assert (item.offer_id, item.region_id, item.region_name) == (
        sold.offer_id, "reg-c", "our-cloud",
    )  # fmt: skip
    assert (item.provider_kind, item.owned, item.preferred) == ("gcp", False, True)
    assert (item.gpu_type, item.gpu_count, item.free_gpu_count) == ("A100", 2, 2)
    assert (item.cpu_count, item.free_cpu_count) == (24, 24)
    assert (item.memory_bytes, item.free_memory_bytes) == (170 * GIB, 170 * GIB)
    assert (item.workers_that_fit, item.machine_type, item.spot) == (3, "m1", True)
    assert item.zones == ("east-a", "east-b")
    assert (item.price_is_estimate, item.price_read_on) == (True, date(2026, 2, 1))
    assert item.microcredits_per_hour == 2_500_000
    assert item.microcredits_per_gpu_hour == 1_250_000


def test_at_most_as_many_are_ranked_as_asked() -> None:
    nodes = [offer(f"n{at}") for at in range(5)]
    assert [each.offer_id for each in rank(demand(), nodes, NO_MARKET, 2).items] == ["n0", "n1"]
    assert len(rank(demand(), [offer(f"n{at:03}") for at in range(101)]).items) == 100
    nothing = rank(demand(), [])
    assert (nothing.placeable, [each.code for each in nothing.refusals]) == (False, ["no-offers"])
    assert nothing.refusals == (NOTHING_THERE,)
    assert not NOTHING_THERE.ever


def test_a_cloud_offer_may_cost_exactly_what_a_job_pays() -> None:
    sold = cloud_offer(gpus=2)
    for most, dear in ((1_250_000, False), (1_249_999, True)):
        assert is_too_dear(sold, demand(2, max_price_microcredits_per_gpu_hour=most)) is dear
    for cap, dear in ((5_000_000, False), (4_999_999, True)):
        asked = demand(2, worker_count=2, price_cap_microcredits_per_hour=cap)
        assert is_too_dear(sold, asked) is dear


def test_a_worker_in_a_cloud_costs_machine_disk_and_fee() -> None:
    sold = cloud_offer(gpus=3, disk_microcredits_per_gb_month=73_000)
    asked = demand(3, disk_size_gb=50)
    assert boot_disk_gb(sold, asked) == 100
    assert boot_disk_gb(sold, demand(3, disk_size_gb=50, data_bytes=10**9 + 1)) == 102
    assert machine_cost(sold, asked) == 2_000_000 + 100 * 100
    assert worker_cost(sold, asked) == 2_010_000 + 3 * 250_000
    assert gpu_hour_cost(sold, asked) == 920_000
    odd = cloud_offer(gpus=3, microcredits_per_hour=1)
    assert gpu_hour_cost(odd, asked) == 250_001, "rounded up"
    plain = cloud_offer(gpus=0, gpu_type=None, fee=UsageRates())
    assert gpu_hour_cost(plain, demand()) == 0
    zones = (MachineOffer(machine_type="m", microcredits_per_hour=5),)
    assert priced_zones(zones, 0) == zones
    assert priced_zones(zones, 2)[0].microcredits_per_hour == 7


def test_the_cap_of_a_machine_is_the_smaller_limit_without_the_fee() -> None:
    sold = cloud_offer(gpus=2)
    gpu_limit = {"max_price_microcredits_per_gpu_hour": 3_000_000}
    assert machine_cap(sold, demand(2, **gpu_limit)) == 6_000_000 - 500_000
    capped = demand(2, worker_count=2, price_cap_microcredits_per_hour=8_000_001, **gpu_limit)
    assert machine_cap(sold, capped) == 4_000_000 - 500_000
    assert machine_cap(cloud_offer(gpus=0, fee=UsageRates()), demand()) is None


def test_machines_that_are_being_made_are_told_with_zones_and_price() -> None:
    sold = cloud_offer()
    one, two = being_made(sold, sold.zones, 1), being_made(sold, sold.zones[:1], 2)
    assert one.detail == (
        "cloud region our-cloud (east): a machine is being created for it: on-demand m1 (1×A100) "
        "in east-a, else east-b, about 2.25 credits an hour each"
    )
    assert (one.code, one.ever, one.offer_id) == ("being-made", True, sold.offer_id)
    assert "2 machines are being created" in two.detail


def test_a_machine_is_made_with_room_for_its_system_and_podman_where_an_image_is_asked() -> None:
    spec = spec_of(cloud_offer(), demand(1, disk_size_gb=20, needs_image=True), 60, {"a": "b"})
    assert (spec.disk_size_gb, spec.lifetime_s, spec.tags, spec.containers) == (
        70, 60, {"a": "b"}, True,
    )  # fmt: skip
    assert not spec_of(cloud_offer(), demand(1), 60, {}).containers


def test_the_market_knows_its_offers_by_id() -> None:
    sold, other = cloud_offer(), cloud_offer("m2")
    known = market(sold, other)
    assert known.offer(other.offer_id) == other
    assert [choice.offer.machine_type for choice in known.fitting(demand(1))] == ["m1", "m2"]


# ── rounds ──────────────────────────────────────────────────────────────────────────────────────


def test_the_limit_of_a_round_counts_machines_that_are_made_too() -> None:
    jobs = [job(f"job-{at}", gpus=1, age_s=9 - at) for at in range(4)]
    context = PlanningContext(now=NOW, market=market(cloud_offer()), limit=2)
    made = plan(by_demand(jobs), [offer(gpus=1)], context)
    assert [each.job_id for each in made.assignments] == ["job-0"]
    assert [each.job_id for each in made.bursts] == ["job-1"]


def test_a_gpu_weighs_eight_cpus() -> None:
    assert weight(2, 3, 5) == 2 * (3 * 8 + 5)
    assert OWNER != OTHER


def test_an_account_that_holds_nothing_comes_before_one_that_holds_anything() -> None:
    jobs = [
        guest("job-old", age_s=99),
        guest("job-new", age_s=1, account_id=THIRD, project_id="prj-2"),
    ]
    node = public()
    context = PlanningContext(now=NOW, held={OWNER: 1, "prj-1": 1})
    assert [each.job_id for each in plan(by_demand(jobs), [node], context).assignments] == [
        "job-new"
    ]
    context = PlanningContext(now=NOW)
    assert [each.job_id for each in plan(by_demand(jobs), [node], context).assignments] == [
        "job-old"
    ]


def test_nodes_are_kept_free_in_the_region_that_was_asked_whichever_comes_first() -> None:
    jobs = [
        job("job-large", gpus=4, age_s=9999, region_id="reg-2"),
        job("job-small", gpus=1, age_s=1, region_id="reg-2"),
    ]
    nodes = [offer("n1", gpus=4), offer("n2", gpus=4, free=2, region_id="reg-2")]
    made = plan(by_demand(jobs), nodes, PlanningContext(now=NOW))
    assert made.assignments == ()
    young = plan(by_demand(jobs[1:]), nodes, PlanningContext(now=NOW))
    assert [each.job_id for each in young.assignments] == ["job-small"]


def test_workers_on_one_node_come_before_workers_on_two() -> None:
    asked = job(gpus=1, worker_count=2)
    whole = offer("z", gpus=4, free=4, region_id="reg-2")
    halves = [offer("a", gpus=1), offer("b", gpus=1)]
    (taken,) = plan(by_demand([asked]), [*halves, whole], PlanningContext(now=NOW)).assignments
    assert [slot.node_id for slot in taken.slots] == ["z", "z"]
