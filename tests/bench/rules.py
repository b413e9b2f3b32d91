"""The pure rules, beside a bare loop over the same pairs of jobs and nodes."""

import random
from collections.abc import Sequence

from tests.bench.measure import Row, best_s, compared
from tests.rules.placement.offers import GIB, NOW, by_demand, job, offer
from workflows.contracts.placement import NodeOffer, PendingJob
from workflows.rules.placement.inventory import Inventory
from workflows.rules.placement.planner import PlanningContext, plan
from workflows.rules.placement.ranking import rank

_TYPES = ("A100", "H100", "T4", "RTX4090", "L4")


def rows() -> list[Row]:
    """Planning and ranking."""
    chance = random.Random(1)
    jobs = [_job(chance, number) for number in range(500)]
    nodes = [offer_of(chance, number) for number in range(1000)]
    full = [node.model_copy(update={"free_cpu_count": 0}) for node in nodes]
    many = Inventory(offer_of(chance, number) for number in range(10_000))
    asked = job(gpus=4, cpu_count=8).demand
    situation = PlanningContext(now=NOW)
    pairs_s = best_s(lambda: _bare_loop(jobs, nodes))
    return [
        compared(
            "plan, a part fits",
            "500 jobs x 1,000 nodes",
            best_s(lambda: plan(by_demand(jobs), nodes, situation)),
            "bare loop over all pairs",
            pairs_s,
        ),
        compared(
            "plan, nothing fits",
            "500 jobs x 1,000 nodes",
            best_s(lambda: plan(by_demand(jobs), full, situation)),
            "bare loop over all pairs",
            pairs_s,
        ),
        compared(
            "offers for one request",
            "10,000 nodes",
            best_s(lambda: rank(asked, many)),
            "bare loop over all nodes",
            best_s(lambda: _bare_loop(jobs[:10], nodes)),
        ),
    ]


def _bare_loop(jobs: Sequence[PendingJob], nodes: Sequence[NodeOffer]) -> int:
    """The least that looking at every pair can cost: one comparison each."""
    free = [node.free_cpu_count for node in nodes]
    wanted = [pending.demand.cpu_count for pending in jobs]
    fitting = 0
    for cpus in wanted:
        for available in free:
            if available >= cpus:
                fitting += 1
    return fitting


def _job(chance: random.Random, number: int) -> PendingJob:
    return job(
        f"job-{number}",
        gpus=chance.choice((0, 1, 2, 4, 8)),
        age_s=number,
        gpu_types=(chance.choice(_TYPES),),
        cpu_count=chance.randint(1, 32),
        memory_bytes=chance.randint(1, 64) * GIB,
        worker_count=chance.choice((1, 1, 1, 2, 4)),
        project_id=f"prj-{number % 20}",
    )


def offer_of(chance: random.Random, number: int) -> NodeOffer:
    """One of many nodes, of which each is a little different."""
    return offer(
        f"node-{number:05}",
        gpus=8,
        free=chance.randint(0, 8),
        gpu_type=_TYPES[number % len(_TYPES)],
        region_id=f"reg-{number % 10}",
        cpu_count=64,
        free_cpu_count=chance.randint(0, 64),
        memory_bytes=256 * GIB,
        free_memory_bytes=chance.randint(0, 256) * GIB,
    )
