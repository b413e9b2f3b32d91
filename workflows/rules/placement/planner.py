"""Placement, pure: jobs and offers in; assignments, and every refusal with its reason, out.

What fits no node has machines made for it, where clouds sell what it asks for (`cloud_market.py`).

Order: priority first; among projects the one that holds least; within one, first come first
served. A job that does not fit lets later ones pass. One that could fit, were enough of it free,
and has waited for `STARVATION_LIMIT`, has the nodes that it needs held back until it fits: later
jobs are not placed there, and what runs there ends some day. One job of each project is helped so.

Choice: feasible → providers whose credits are used first → own machines before others' → cheapest →
fewest nodes → fullest node, so that large holes stay whole. All workers of a job lie in one region,
where the nodes reach each other, on one GPU type where that is possible; several may share a node.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain

from workflows.contracts.placement import (
    Assignment,
    Burst,
    Demand,
    JobRefusals,
    NodeOffer,
    PendingJob,
    Plan,
    Refusal,
    WorkerSlot,
)
from workflows.rules.placement.cloud_market import NO_MARKET, Choice, Market
from workflows.rules.placement.inventory import Inventory, NodeCapacity
from workflows.rules.placement.node_refusals import NOTHING_THERE, refusals_of

STARVATION_LIMIT = timedelta(minutes=10)
CPUS_PER_GPU = 8
"""The weight of a GPU in CPUs, to compare how much projects hold."""


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """The planning context: what a planning round knows beside jobs and offers."""

    now: datetime
    held: Mapping[str, int] = field(default_factory=dict)
    """The weight (see `weight`) of the running jobs of each project."""
    shortages: frozenset[str] = frozenset()
    """The ids of offers with a known shortage."""
    market: Market = NO_MARKET
    """The cloud market of the round."""
    limit: int | None = None
    """The most jobs to place; jobs that are not considered are neither placed nor refused."""


def plan(jobs: Iterable[PendingJob], offers: Iterable[NodeOffer], context: PlanningContext) -> Plan:
    """Plan one round: assignments and bursts, and the refusals of jobs that wait or fail."""
    shortages, market = context.shortages, context.market
    inventory = Inventory(offer for offer in offers if offer.node_id not in shortages)
    turns = _FairShareQueue(jobs, context.held)
    assignments: list[Assignment] = []
    bursts: list[Burst] = []
    waiting: list[PendingJob] = []
    hopeless: set[Demand] = set()
    helped: set[str] = set()
    for job in turns:
        demand = job.demand
        chosen = None if demand in hopeless else _decide(demand, inventory, market)
        if chosen is not None:
            if isinstance(chosen, Choice):
                taken = Burst(job_id=job.job_id, offer_id=chosen.offer.offer_id, zones=chosen.zones)
                bursts.append(taken)
            else:
                assignments.append(_take(job.job_id, chosen, demand))
            turns.charge(job)
            if len(assignments) + len(bursts) == context.limit:
                break
            continue
        # Nothing becomes free within a round: what did not fit once does not fit later.
        hopeless.add(demand)
        waiting.append(job)
        overdue = context.now - job.waiting_since >= STARVATION_LIMIT
        if overdue and job.project_id not in helped and _keep_free(job, demand, inventory):
            helped.add(job.project_id)
    failed = tuple(_failed(waiting, market))
    lost = {told.job_id for told in failed}
    left = [job for job in waiting if job.job_id not in lost]
    return Plan(
        assignments=tuple(assignments),
        bursts=tuple(bursts),
        refused=tuple(_refused(left, inventory, market)),
        failed=failed,
    )


def weight(worker_count: int, gpu_count: int, cpu_count: int) -> int:
    """The weight of a job: one number to compare how much projects hold."""
    return worker_count * (gpu_count * CPUS_PER_GPU + cpu_count)


class _FairShareQueue:
    """The fair-share queue of waiting jobs; `charge` moves a project back."""

    def __init__(self, jobs: Iterable[PendingJob], held: Mapping[str, int]) -> None:
        self._held = dict(held)
        self._waiting: dict[str, list[PendingJob]] = {}
        for job in sorted(jobs, key=_within_project, reverse=True):
            self._waiting.setdefault(job.project_id, []).append(job)
        self._heads = [self._head(project) for project in self._waiting]
        heapq.heapify(self._heads)

    def __iter__(self) -> Iterator[PendingJob]:
        while self._heads:
            *_, project = heapq.heappop(self._heads)
            queue = self._waiting[project]
            yield queue.pop()
            if queue:
                heapq.heappush(self._heads, self._head(project))

    def charge(self, job: PendingJob) -> None:
        asked = job.demand
        added = weight(asked.worker_count, asked.gpu_count, asked.cpu_count)
        self._held[job.project_id] = self._held.get(job.project_id, 0) + added

    def _head(self, project: str) -> tuple[int, int, datetime, str, str]:
        job = self._waiting[project][-1]
        return job.priority, self._held.get(project, 0), job.waiting_since, job.job_id, project


def _within_project(job: PendingJob) -> tuple[int, datetime, str]:
    return job.priority, job.waiting_since, job.job_id


def _decide(
    demand: Demand, inventory: Inventory, market: Market
) -> list[NodeCapacity] | Choice | None:
    """Choose nodes before a burst, except that preferred providers come first."""
    nodes = choose_nodes(demand, inventory)
    if nodes is not None and all(machine.preferred for machine in nodes):
        return nodes
    made = market.choose(demand)
    if nodes is None or (made is not None and made.preferred):
        return made
    return nodes


def choose_nodes(demand: Demand, inventory: Inventory) -> list[NodeCapacity] | None:
    """Choose one node for each worker; None: the workers do not all fit."""
    for mixed in (False, True):
        best: tuple[tuple[object, ...], list[NodeCapacity]] | None = None
        for region in inventory.seen_by(demand):
            if region.refusal(demand) is not None:
                continue
            pools = region.pools(demand)
            if mixed and len(pools) < 2:
                continue
            for pool in [list(chain.from_iterable(pools))] if mixed else pools:
                found = _pick(pool, demand)
                if found is not None and (best is None or found[0] < best[0]):
                    best = found
        if best is not None or demand.worker_count == 1:
            return best[1] if best else None
    return None


def _pick(
    pool: list[NodeCapacity], demand: Demand
) -> tuple[tuple[object, ...], list[NodeCapacity]] | None:
    """The best nodes of a pool for all workers, with a key to compare pools by."""
    rooms = [(room, machine) for machine in pool if (room := machine.free_slots(demand))]
    whole = [machine for room, machine in rooms if room >= demand.worker_count]
    if whole:
        best = min(whole, key=lambda machine: preference(machine, demand))
        key = preference(best, demand)
        return (*key[:3], 1, key), [best] * demand.worker_count
    if sum(room for room, _ in rooms) < demand.worker_count:
        return None
    rooms.sort(key=lambda entry: (-entry[0], preference(entry[1], demand)))
    chosen = [machine for room, machine in rooms for _ in range(room)][: demand.worker_count]
    first = preference(chosen[0], demand)
    cost = sum(machine.cost_per_hour(demand) for machine in chosen)
    nodes = len({machine.node_id for machine in chosen})
    return (*first[:2], cost // demand.worker_count, nodes, first), chosen


def preference(
    machine: NodeCapacity, demand: Demand
) -> tuple[bool, bool, int, bool, int, int, str]:
    """Smallest first: preferred, owned, cheap, without GPUs for CPU jobs, with little left over,
    by id."""
    return (
        not machine.preferred,
        machine.owner_id != demand.account_id,
        machine.cost_per_hour(demand),
        machine.gpu_total > 0 and not demand.gpu_count,
        len(machine.free_gpus) - demand.gpu_count,
        machine.free_cpus,
        machine.node_id,
    )


def _take(job_id: str, chosen: list[NodeCapacity], demand: Demand) -> Assignment:
    return Assignment(
        job_id=job_id,
        slots=tuple(
            WorkerSlot(worker=worker, node_id=machine.node_id, gpu_indices=machine.take(demand))
            for worker, machine in enumerate(chosen)
        ),
    )


def _keep_free(job: PendingJob, demand: Demand, inventory: Inventory) -> bool:
    """Hold back nodes that together could run the job. False: there are none."""
    for region in inventory.seen_by(demand):
        if region.refusal(demand) is not None:
            continue
        able = [
            (capacity, machine)
            for pool in region.pools(demand)
            for machine in pool
            if machine.active
            and machine.held_for is None
            and demand.disk_bytes <= machine.free_disk_bytes
            and (capacity := machine.capacity(demand))
        ]
        if sum(capacity for capacity, _ in able) < demand.worker_count:
            continue
        # Those that are nearly free, so that the same ones are chosen again next round.
        able.sort(key=lambda e: (-len(e[1].free_gpus), -e[1].free_cpus, e[1].node_id))
        needed = demand.worker_count
        for capacity, machine in able:
            if needed > 0:
                machine.held_for = job.job_id
                needed -= capacity
        return True
    return False


def _failed(waiting: list[PendingJob], market: Market) -> Iterator[JobRefusals]:
    """The jobs that fail for lack of quota, each with its refusal."""
    for job in waiting:
        if (refusal := market.quota_refusal(job.demand)) is not None:
            yield JobRefusals(job_id=job.job_id, refusals=(refusal,))


def _refused(
    waiting: list[PendingJob], inventory: Inventory, market: Market
) -> Iterator[JobRefusals]:
    """The refusals of waiting jobs after the round; jobs with equal demands share them."""
    keepers = {m.held_for for region in inventory.regions for m in region.machines()} - {None}
    known: dict[Demand, tuple[Refusal, ...]] = {}
    for job in waiting:
        demand = job.demand
        if job.job_id in keepers:
            refusals = _all_refusals(demand, inventory, market, job.job_id)
        elif demand in known:
            refusals = known[demand]
        else:
            refusals = known[demand] = _all_refusals(demand, inventory, market)
        yield JobRefusals(job_id=job.job_id, refusals=refusals)


def _all_refusals(
    demand: Demand, inventory: Inventory, market: Market, job_id: str | None = None
) -> tuple[Refusal, ...]:
    """The refusals of all nodes and all cloud regions."""
    clouds = market.refusals(demand)
    nodes = refusals_of(demand, inventory, job_id)
    return tuple(clouds) if clouds and nodes == (NOTHING_THERE,) else (*nodes, *clouds)
