"""Placement, pure: jobs and offers in; assignments, and every refusal with its reason, out.

What fits no node has machines made for it, where clouds sell what it asks for (`cloud_market.py`).

Order: among accounts the one that holds least; among its jobs priority first, then the project
that holds least; within one, first come first served. Equal demands have equal answers, so a demand
that does not fit costs one look, however many jobs have it, and lets later ones pass. One that
could fit, were enough of it free, and has waited for `STARVATION_LIMIT`, has the nodes that it
needs held back until it fits: later jobs are not placed there, and what runs there ends some day.
One job of each project is helped so.

Choice: feasible → providers whose credits are used first → own machines before others' → cheapest →
fewest nodes → fullest node, so that large holes stay whole. All workers of a job lie in one region,
where the nodes reach each other, on one GPU type where that is possible; several may share a node.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice

from workflows.contracts.placement import (
    Assignment,
    Burst,
    Demand,
    DemandRefusals,
    JobRefusals,
    NodeOffer,
    PendingDemand,
    PendingJob,
    Plan,
    Refusal,
    WorkerSlot,
)
from workflows.rules.placement.cloud_market import NO_MARKET, Choice, Market
from workflows.rules.placement.inventory import Inventory, NodeCapacity
from workflows.rules.placement.node_refusals import NOTHING_THERE, refusals_of
from workflows.rules.placement.volumes import VolumeHolder, VolumeHolders

STARVATION_LIMIT = timedelta(minutes=10)
CPUS_PER_GPU = 8
"""The weight of a GPU in CPUs, to compare how much accounts and projects hold."""


@dataclass(frozen=True, slots=True)
class PlanningContext:
    """The planning context: what a planning round knows beside jobs and offers."""

    now: datetime
    held: Mapping[str, int] = field(default_factory=dict)
    """The weight (see `weight`) of the running jobs of each project and of each account, by id."""
    shortages: frozenset[str] = frozenset()
    """The ids of offers with a known shortage."""
    market: Market = NO_MARKET
    """The cloud market of the round."""
    volumes: Mapping[str, tuple[VolumeHolder, ...]] = field(default_factory=dict)
    """The jobs that have the volumes of pending jobs, by volume."""
    reservations: Mapping[str, str] = field(default_factory=dict)
    """The id of each reservation that a job holds, to a sentence that names both."""
    limit: int | None = None
    """The most jobs to place, and to fail; jobs that are not considered are neither placed nor
    refused."""


def plan(
    demands: Iterable[PendingDemand], offers: Iterable[NodeOffer], context: PlanningContext
) -> Plan:
    """Plan one round: assignments and bursts, and the refusals of jobs that wait or fail."""
    shortages, market = context.shortages, context.market
    usable = (offer for offer in offers if offer.node_id not in shortages)
    inventory = Inventory(usable, context.reservations)
    holders = VolumeHolders(context.volumes)
    queue = _FairShareQueue(demands, context.held)
    assignments: list[Assignment] = []
    bursts: list[Burst] = []
    waiting: list[_Line] = []
    hopeless: set[Demand] = set()
    helped: set[str] = set()
    for line in queue:
        demand, job = line.pending.demand, line.head
        if holders.refusal(demand) is not None:
            waiting.append(line)
            continue
        chosen = None if demand in hopeless else _decide(demand, inventory, market)
        if chosen is not None:
            if isinstance(chosen, Choice):
                taken = Burst(job_id=job.job_id, offer_id=chosen.offer.offer_id, zones=chosen.zones)
                bursts.append(taken)
            else:
                assignments.append(_take(job.job_id, chosen, demand))
                inventory.hold(demand, job.job_id)
            if len(assignments) + len(bursts) == context.limit:
                break
            holders.take(job)
            queue.charge(line)
            continue
        # Nothing becomes free within a round: what did not fit once does not fit later.
        hopeless.add(demand)
        waiting.append(line)
        overdue = context.now - job.waiting_since >= STARVATION_LIMIT
        if overdue and job.project_id not in helped and _keep_free(job, demand, inventory):
            helped.add(job.project_id)
    failing = {
        demand: refusal
        for demand in {line.pending.demand for line in waiting}
        if holders.refusal(demand) is None and (refusal := market.quota_refusal(demand)) is not None
    }
    left = [line for line in waiting if line.pending.demand not in failing]
    return Plan(
        assignments=tuple(assignments),
        bursts=tuple(bursts),
        refused=tuple(_refused(left, inventory, market, holders)),
        failed=tuple(islice(_failed(waiting, failing), context.limit)),
    )


def weight(worker_count: int, gpu_count: int, cpu_count: int) -> int:
    """The weight of a job: one number to compare how much accounts and projects hold."""
    return worker_count * (gpu_count * CPUS_PER_GPU + cpu_count)


class _Line:
    """A pending demand in the queue, and its first job that is not placed yet."""

    __slots__ = ("_jobs", "head", "pending")

    def __init__(
        self, pending: PendingDemand, head: PendingJob, jobs: Iterator[PendingJob]
    ) -> None:
        self.pending = pending
        self.head = head
        self._jobs = jobs

    def advance(self) -> bool:
        """Go on to the next job. False: there is none."""
        following = next(self._jobs, None)
        if following is None:
            return False
        self.head = following
        return True

    def left(self) -> Iterator[PendingJob]:
        """The head and all jobs behind it."""
        return chain((self.head,), self._jobs)


class _FairShareQueue:
    """The fair-share queue of pending demands, each at its turn.

    A demand is left out after its turn unless `charge` is called, which also moves its account and
    its project back.
    """

    def __init__(self, demands: Iterable[PendingDemand], held: Mapping[str, int]) -> None:
        self._held = dict(held)
        self._charged = False
        self._lines: dict[str, list[tuple[int, datetime, str, _Line]]] = {}
        self._projects: dict[str, list[tuple[int, int, datetime, str, str]]] = {}
        for pending in demands:
            jobs = iter(pending.jobs)
            head = next(jobs, None)
            if head is not None:
                self._projects.setdefault(pending.demand.account_id, [])
                self._add_line(_Line(pending, head, jobs))
        owners = {
            project_id: lines[0][-1].pending.demand.account_id
            for project_id, lines in self._lines.items()
        }
        for project_id, account_id in owners.items():
            self._add_project(account_id, project_id)
        self._accounts: list[tuple[int, datetime, str, str]] = []
        for account_id in self._projects:
            self._add_account(account_id)

    def __iter__(self) -> Iterator[_Line]:
        while self._accounts:
            *_, account_id = heapq.heappop(self._accounts)
            projects = self._projects[account_id]
            *_, project_id = heapq.heappop(projects)
            lines = self._lines[project_id]
            *_, line = heapq.heappop(lines)
            self._charged = False
            yield line
            if self._charged and line.advance():
                self._add_line(line)
            if lines:
                self._add_project(account_id, project_id)
            if projects:
                self._add_account(account_id)

    def charge(self, line: _Line) -> None:
        """Count the head of the demand at turn as held."""
        demand = line.pending.demand
        added = weight(demand.worker_count, demand.gpu_count, demand.cpu_count)
        for holder_id in (line.pending.project_id, demand.account_id):
            self._held[holder_id] = self._held.get(holder_id, 0) + added
        self._charged = True

    def _add_line(self, line: _Line) -> None:
        pending, head = line.pending, line.head
        entry = pending.priority, head.waiting_since, head.job_id, line
        heapq.heappush(self._lines.setdefault(pending.project_id, []), entry)

    def _add_project(self, account_id: str, project_id: str) -> None:
        priority, since, job_id, _ = self._lines[project_id][0]
        entry = priority, self._held.get(project_id, 0), since, job_id, project_id
        heapq.heappush(self._projects[account_id], entry)

    def _add_account(self, account_id: str) -> None:
        _, _, since, job_id, _ = self._projects[account_id][0]
        entry = self._held.get(account_id, 0), since, job_id, account_id
        heapq.heappush(self._accounts, entry)


def _decide(
    demand: Demand, inventory: Inventory, market: Market
) -> list[NodeCapacity] | Choice | None:
    """Choose nodes before a burst, except that preferred providers come first."""
    if inventory.holder(demand) is not None:
        return None
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
    """Hold back nodes that together could run the job. False: there are none, or no need."""
    if inventory.holder(demand) is not None:  # It waits for another job, and not for a node.
        return False
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


def _failed(waiting: list[_Line], failing: Mapping[Demand, Refusal]) -> Iterator[JobRefusals]:
    """The jobs that fail for lack of quota, each with its refusal."""
    for line in waiting:
        refusal = failing.get(line.pending.demand)
        if refusal is not None:
            for job in line.left():
                yield JobRefusals(job_id=job.job_id, refusals=(refusal,))


def _refused(
    waiting: list[_Line], inventory: Inventory, market: Market, holders: VolumeHolders
) -> Iterator[DemandRefusals]:
    """The refusals of waiting jobs after the round, once for each project and demand.

    The nodes that a hold-back keeps for one of these jobs refuse none of them for that.
    """
    keepers = {m.held_for for region in inventory.regions for m in region.machines()} - {None}
    helped = {_key(line): line.head.job_id for line in waiting if line.head.job_id in keepers}
    known: dict[tuple[Demand, str | None], tuple[Refusal, ...]] = {}
    for key, pending in {_key(line): line.pending for line in waiting}.items():
        of = pending.demand, helped.get(key)
        if of not in known:
            taken = holders.refusal(pending.demand)
            known[of] = (
                (taken,)
                if taken is not None
                else _all_refusals(pending.demand, inventory, market, of[1])
            )
        yield DemandRefusals(project_id=key[0], demand_key=key[1], refusals=known[of])


def _key(line: _Line) -> tuple[str, str]:
    return line.pending.project_id, line.pending.demand_key


def _all_refusals(
    demand: Demand, inventory: Inventory, market: Market, job_id: str | None = None
) -> tuple[Refusal, ...]:
    """The refusals of all nodes and all cloud regions."""
    clouds = market.refusals(demand)
    nodes = refusals_of(demand, inventory, job_id)
    return tuple(clouds) if clouds and nodes == (NOTHING_THERE,) else (*nodes, *clouds)
