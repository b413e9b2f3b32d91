"""Placement by property: whatever is asked and whatever is there."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.placement.offers import GIB, NOW, OTHER, OWNER, by_demand, job, key_of, offer
from workflows.contracts.placement import Assignment, NodeOffer, PendingJob, Plan
from workflows.rules.placement.inventory import reserved_cpus
from workflows.rules.placement.planner import PlanningContext, plan

TYPES = ("A100", "A100-80GB", "T4")

offers_strategy = st.lists(
    st.builds(
        lambda gpus, free, cpus, used, **changes: offer(
            gpus=gpus,
            free=min(gpus, free),
            cpu_count=cpus,
            free_cpu_count=max(0, cpus - used),
            **changes,
        ),
        gpus=st.integers(0, 4),
        free=st.integers(0, 4),
        cpus=st.integers(1, 16),
        used=st.integers(0, 16),
        gpu_type=st.sampled_from(TYPES),
        region_id=st.sampled_from(("reg-1", "reg-2")),
        account_id=st.sampled_from((OWNER, OTHER)),
        public=st.booleans(),
        market_microcredits_per_gpu_hour=st.sampled_from((None, 2_780_000)),
        runtimes=st.sampled_from((("process",), ("process", "podman"))),
        active=st.sampled_from((True, True, False)),
        trusted_only=st.booleans(),
        allows_apt_packages=st.booleans(),
        has_run_roots=st.booleans(),
        free_memory_bytes=st.integers(0, 64).map(lambda gib: gib * GIB),
        used_ports=st.sampled_from(((), (8888,))),
    ),
    max_size=8,
).map(lambda made: [o.model_copy(update={"node_id": f"n{i}"}) for i, o in enumerate(made)])

jobs_strategy = st.lists(
    st.builds(
        job,
        gpus=st.integers(0, 4),
        age_s=st.integers(0, 1200),
        cpu_count=st.integers(0, 8),
        memory_bytes=st.integers(0, 16).map(lambda gib: gib * GIB),
        worker_count=st.integers(1, 3),
        priority=st.integers(1, 5),
        project_id=st.sampled_from(("prj-1", "prj-2", "prj-3")),
        account_id=st.sampled_from((OWNER, OWNER, OTHER)),
        only_owned=st.booleans(),
        needs_image=st.booleans(),
        needs_apt_packages=st.booleans(),
        region_id=st.sampled_from((None, None, "reg-1")),
        port=st.sampled_from((None, None, 8888)),
    ),
    max_size=10,
).map(
    lambda made: [
        j.model_copy(
            update={
                "job_id": f"job-{i}",
                "project_id": j.project_id + "-other" * (j.demand.account_id == OTHER),
            }
        )
        for i, j in enumerate(made)
    ]
)


def planned(jobs: list[PendingJob], offers: list[NodeOffer]) -> Plan:
    return plan(by_demand(jobs), offers, PlanningContext(now=NOW))


def not_placed(made: Plan, jobs: list[PendingJob]) -> list[PendingJob]:
    taken = {assignment.job_id for assignment in made.assignments}
    return [job for job in jobs if job.job_id not in taken]


def seen(asked: PendingJob, offers: list[NodeOffer]) -> set[str]:
    demand = asked.demand
    return {
        o.node_id
        for o in offers
        if o.account_id == demand.account_id or (o.public and demand.gpu_count)
    }


@settings(max_examples=100, deadline=None)
@given(jobs=jobs_strategy, offers=offers_strategy)
def test_never_more_is_given_than_is_free(jobs: list[PendingJob], offers: list[NodeOffer]) -> None:
    by_job = {j.job_id: j for j in jobs}
    cpus: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    given_gpus: list[tuple[str, int]] = []
    ports: list[tuple[str, int]] = []
    nodes = {o.node_id: o for o in offers}
    for assignment in planned(jobs, offers).assignments:
        placed = by_job[assignment.job_id]
        for slot in assignment.slots:
            node, asked = nodes[slot.node_id], placed.demand
            assert len(slot.gpu_indices) == asked.gpu_count
            given_gpus += [(slot.node_id, index) for index in slot.gpu_indices]
            cpus[slot.node_id] += reserved_cpus(
                asked.cpu_count, asked.gpu_count, node.cpu_count, len(node.gpus)
            )
            memory[slot.node_id] += asked.memory_bytes
            ports += [(slot.node_id, placed.demand.port)] if placed.demand.port is not None else []
    free = {(o.node_id, slot.index) for o in offers for slot in o.gpus if slot.free}
    assert len(set(given_gpus)) == len(given_gpus)
    assert set(given_gpus) <= free
    assert len(set(ports)) == len(ports)
    assert all(cpus[o.node_id] <= o.free_cpu_count for o in offers)
    assert all(memory[o.node_id] <= o.free_memory_bytes for o in offers)


@settings(max_examples=100, deadline=None)
@given(jobs=jobs_strategy, offers=offers_strategy)
def test_a_job_is_placed_whole_on_nodes_that_it_may_use_or_told_why_by_each(
    jobs: list[PendingJob], offers: list[NodeOffer]
) -> None:
    made = planned(jobs, offers)
    nodes = {o.node_id: o for o in offers}
    by_job = {j.job_id: j for j in jobs}
    for assignment in made.assignments:
        placed = by_job[assignment.job_id]
        assert [slot.worker for slot in assignment.slots] == list(range(placed.demand.worker_count))
        chosen = [nodes[slot.node_id] for slot in assignment.slots]
        assert {node.node_id for node in chosen} <= seen(placed, offers)
        assert len({node.region_id for node in chosen}) == 1
        assert all(node.active for node in chosen)
        if placed.demand.needs_apt_packages:
            assert all(node.allows_apt_packages or node.has_run_roots for node in chosen)
        guests_nodes = [node for node in chosen if node.account_id != placed.demand.account_id]
        assert not guests_nodes or (placed.demand.needs_image and placed.demand.gpu_count)
        assert all(
            node.public and not node.trusted_only and node.market_microcredits_per_gpu_hour
            for node in guests_nodes
        )
        if placed.demand.only_owned:
            assert all(node.account_id == placed.demand.account_id for node in chosen)
    told = {(each.project_id, each.demand_key): each.refusals for each in made.refused}
    left = not_placed(made, jobs)
    assert told.keys() == {(each.project_id, key_of(each.demand)) for each in left}
    for waits in left:
        refusals = told[waits.project_id, key_of(waits.demand)]
        assert {r.offer_id for r in refusals} == (seen(waits, offers) or {"none"})
        assert all(r.detail for r in refusals)


@settings(max_examples=60, deadline=None)
@given(jobs=jobs_strategy, offers=offers_strategy, data=st.data())
def test_the_order_of_jobs_and_offers_makes_no_difference(
    jobs: list[PendingJob], offers: list[NodeOffer], data: st.DataObject
) -> None:
    shuffled = planned(data.draw(st.permutations(jobs)), data.draw(st.permutations(offers)))
    assert shuffled == planned(jobs, offers)


@settings(max_examples=100, deadline=None)
@given(jobs=jobs_strategy, offers=offers_strategy)
def test_a_second_round_over_what_is_left_places_nothing_more(
    jobs: list[PendingJob], offers: list[NodeOffer]
) -> None:
    young = [j.model_copy(update={"waiting_since": NOW}) for j in jobs]
    first = planned(young, offers)
    by_job = {j.job_id: j for j in young}
    remaining = [_after(o, first.assignments, by_job) for o in offers]
    again = planned(not_placed(first, young), remaining)
    nodes = {o.node_id: o for o in offers}
    # A node that was closed to guests in the first round, because a job of its owner waited, which
    # was then placed on another account's, may take a guest in the next.
    assert all(
        nodes[slot.node_id].account_id != by_job[assignment.job_id].demand.account_id
        for assignment in again.assignments
        for slot in assignment.slots
    )


def _after(
    node: NodeOffer, assignments: tuple[Assignment, ...], by_job: dict[str, PendingJob]
) -> NodeOffer:
    """The node with what was given away no longer free."""
    taken: set[int] = set()
    cpus = memory = disk = 0
    ports = set(node.used_ports)
    for assignment in assignments:
        placed = by_job[assignment.job_id]
        for slot in assignment.slots:
            if slot.node_id != node.node_id:
                continue
            asked = placed.demand
            taken |= set(slot.gpu_indices)
            cpus += reserved_cpus(asked.cpu_count, asked.gpu_count, node.cpu_count, len(node.gpus))
            memory += asked.memory_bytes
            disk += asked.disk_size_gb * 1000**3
            ports |= {placed.demand.port} if placed.demand.port is not None else set()
    return node.model_copy(
        update={
            "gpus": tuple(
                slot.model_copy(update={"free": slot.free and slot.index not in taken})
                for slot in node.gpus
            ),
            "free_cpu_count": node.free_cpu_count - cpus,
            "free_memory_bytes": node.free_memory_bytes - memory,
            "free_disk_bytes": node.free_disk_bytes - disk,
            "used_ports": tuple(ports),
        }
    )
