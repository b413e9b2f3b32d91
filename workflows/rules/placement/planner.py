"""Placement, pure: jobs and offers in; assignments, and every refusal with its reason, out.

What fits no node has machines made for it, where clouds sell what it asks for (`cloud_market.py`).

Order: among accounts the one that holds least; among its jobs priority first, then the project
that holds least; within one, first come first served. Equal demands have equal answers, so a demand
that does not fit costs one look, however many jobs have it, and lets later ones pass. One that
could fit, were enough of it free, and has waited for `STARVATION_LIMIT`, has the nodes that it
needs held back until it fits: later jobs are not placed there, and what runs there ends some day.
One job of each project is helped so. Guests, the jobs on nodes of another account, come last, on
what the owner's own queue leaves: a node that a job of its owner waits for takes none.

Choice: feasible → the first provider with room of those that the job names, in their order →
providers whose credits are used first → own machines before others' → cheapest, also of others'
nodes and of machines that would be made; of one price a node, a machine of an own cloud, one of a
marketplace → fewest nodes → fullest node, so that large holes stay whole. All workers of a job lie
in one region, where the nodes reach each other, on one GPU type where that is possible; several may
share a node.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
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
    RunningGuest,
    WorkerSlot,
)
from workflows.rules.placement.cloud_costs import worker_cost
from workflows.rules.placement.cloud_market import NO_MARKET, Choice, Market
from workflows.rules.placement.fair_share import FairShareQueue, Line
from workflows.rules.placement.inventory import Inventory, NodeCapacity
from workflows.rules.placement.named_providers import in_order
from workflows.rules.placement.node_refusals import NOTHING_THERE, refusals_of
from workflows.rules.placement.preemption import Notices, notices
from workflows.rules.placement.volumes import VolumeHolder, VolumeHolders

STARVATION_LIMIT = timedelta(minutes=10)


class _Later(Enum):
    """The decision to place a job as a guest, once all owners' jobs have had their turn."""

    GUEST = "guest"


_GUEST = _Later.GUEST
_Decision = list[NodeCapacity] | Choice | _Later | None


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
    guests: tuple[RunningGuest, ...] = ()
    """The guests that may be pre-empted for jobs of their nodes' owners."""
    limit: int | None = None
    """The most jobs to place, and to fail; jobs that are not considered are neither placed nor
    refused."""


def plan(
    demands: Iterable[PendingDemand], offers: Iterable[NodeOffer], context: PlanningContext
) -> Plan:
    """Plan one round: assignments and bursts, and the refusals of jobs that wait or fail."""
    usable = (offer for offer in offers if offer.node_id not in context.shortages)
    inventory = Inventory(usable, context.reservations)
    made = _Round(inventory, VolumeHolders(context.volumes), context)
    queue = FairShareQueue(demands, context.held)
    made.place(queue, made.decide)
    if made.guests and not made.is_full:
        made.keep_for_owners()
        made.place(FairShareQueue(made.guest_demands(), queue.held), made.decide_guest)
    return made.result()


class _Round:
    """One planning round: owners' own jobs first, then guests on what these leave."""

    def __init__(
        self, inventory: Inventory, holders: VolumeHolders, context: PlanningContext
    ) -> None:
        self.guests: list[Line] = []
        """The lines that may be placed on others' nodes, once all owners' jobs have had a turn."""
        self._inventory = inventory
        self._holders = holders
        self._context = context
        self._market = context.market.of_round()
        self._assignments: list[Assignment] = []
        self._bursts: list[Burst] = []
        self._waiting: list[Line] = []
        self._hopeless: set[Demand] = set()
        self._helped: set[str] = set()

    @property
    def is_full(self) -> bool:
        return len(self._assignments) + len(self._bursts) == self._context.limit

    def place(self, queue: FairShareQueue, decide: Callable[[Demand], _Decision]) -> None:
        """Place the jobs of a queue, each at its turn, until the round is full."""
        for line in queue:
            demand, job = line.pending.demand, line.head
            if self._holders.refusal(demand) is not None:
                self._waiting.append(line)
                continue
            chosen = None if demand in self._hopeless else decide(demand)
            if chosen is _GUEST:
                self.guests.append(line)
                continue
            if chosen is not None:
                if isinstance(chosen, Choice):
                    self._bursts.append(chosen.burst(job.job_id))
                    self._market.take(chosen, self._context.now)
                else:
                    self._assignments.append(_take(job.job_id, chosen, demand))
                    self._inventory.hold(demand, job.job_id)
                if self.is_full:
                    break
                self._holders.take(job)
                queue.charge(line)
                continue
            # Nothing becomes free within a round: what did not fit once does not fit later.
            self._hopeless.add(demand)
            self._waiting.append(line)
            self._help(line)

    def decide(self, demand: Demand) -> _Decision:
        """Choose own nodes before a burst, except that preferred providers come first.

        Providers that the job names are tried one after another, and the first with room is taken.
        `_GUEST`: the demand has no own node, and fits others' nodes.
        """
        if self._inventory.holder(demand) is not None:
            return None
        found = (self._decide_among(each) for each in in_order(demand))
        return next((chosen for chosen in found if chosen is not None), None)

    def _decide_among(self, demand: Demand) -> _Decision:
        nodes = choose_nodes(demand, self._inventory, of_others=False)
        if nodes is not None and all(machine.preferred for machine in nodes):
            return nodes
        made = self._market.choose(demand)
        if made is not None and made.preferred:
            return made
        if nodes is None and choose_nodes(demand, self._inventory, of_others=True) is not None:
            return _GUEST
        return made if nodes is None else nodes

    def decide_guest(self, demand: Demand) -> _Decision:
        """Choose the cheaper of others' nodes and a burst, as `decide` of the first with room."""
        if self._inventory.holder(demand) is not None:
            return None
        if len(demand.providers) < 2:
            return self._decide_guest_among(demand)
        for each in in_order(demand):  # Own nodes of a provider that is named after others' nodes.
            chosen = choose_nodes(each, self._inventory, of_others=False)
            found = chosen or self._decide_guest_among(each)
            if found is not None:
                return found
        return None

    def _decide_guest_among(self, demand: Demand) -> _Decision:
        nodes = choose_nodes(demand, self._inventory, of_others=True)
        made = self._market.choose(demand)
        if nodes is None or made is None:
            return nodes or made
        cost = sum(machine.cost_per_hour(demand) for machine in nodes)
        return made if worker_cost(made.offer, demand) * demand.worker_count < cost else nodes

    def keep_for_owners(self) -> None:
        """Close to guests all nodes that a job of their owner waits for, however long it waits."""
        lines = chain(self._waiting, self.guests)
        for demand in {line.pending.demand for line in lines}:
            if self._holders.refusal(demand) is None and self._inventory.holder(demand) is None:
                self._inventory.close_to_guests(demand)

    def guest_demands(self) -> list[PendingDemand]:
        return [replace(line.pending, jobs=line.left()) for line in self.guests]

    def result(self) -> Plan:
        market, holders, waiting = self._market, self._holders, self._waiting
        failing = {
            demand: refusal
            for demand in {line.pending.demand for line in waiting}
            if holders.refusal(demand) is None
            and (refusal := market.quota_refusal(demand)) is not None
        }
        left = [line for line in waiting if line.pending.demand not in failing]
        changed = Notices() if self.is_full else self._notices(left)
        return Plan(
            assignments=tuple(self._assignments),
            bursts=tuple(self._bursts),
            refused=tuple(_refused(left, self._inventory, market, holders)),
            failed=tuple(islice(_failed(waiting, failing), self._context.limit)),
            preempted=changed.given,
            withdrawn=changed.withdrawn,
        )

    def _notices(self, waiting: Iterable[Line]) -> Notices:
        """The notices of guests, which leave for jobs that wait for nothing but room."""
        if not self._context.guests:
            return Notices()
        lines = sorted(waiting, key=lambda line: (line.pending.priority, line.head.waiting_since))
        demands = dict.fromkeys(line.pending.demand for line in lines)
        wanting = (
            demand
            for demand in demands
            if self._holders.refusal(demand) is None and self._inventory.holder(demand) is None
        )
        return notices(wanting, self._inventory, self._context.guests)

    def _help(self, line: Line) -> None:
        """Hold nodes back for a job that has waited for too long, one of each project."""
        job, demand = line.head, line.pending.demand
        overdue = self._context.now - job.waiting_since >= STARVATION_LIMIT
        is_first = job.project_id not in self._helped
        if overdue and is_first and _keep_free(job, demand, self._inventory):
            self._helped.add(job.project_id)


def choose_nodes(
    demand: Demand, inventory: Inventory, *, of_others: bool
) -> list[NodeCapacity] | None:
    """Choose one node for each worker; None: the workers do not all fit.

    of_others: choose among the nodes of other accounts, and not among own ones.
    """
    for mixed in (False, True):
        best: tuple[tuple[object, ...], list[NodeCapacity]] | None = None
        for region in inventory.seen_by(demand):
            is_of_others = region.account_id != demand.account_id
            if is_of_others is not of_others or region.refusal(demand) is not None:
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
        is_own = region.account_id == demand.account_id
        if not is_own or region.refusal(demand) is not None:
            continue  # A guest gets what is left, and nothing is kept free for it.
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


def _failed(waiting: list[Line], failing: Mapping[Demand, Refusal]) -> Iterator[JobRefusals]:
    """The jobs that fail for lack of quota, each with its refusal."""
    for line in waiting:
        refusal = failing.get(line.pending.demand)
        if refusal is not None:
            for job in line.left():
                yield JobRefusals(job_id=job.job_id, refusals=(refusal,))


def _refused(
    waiting: list[Line], inventory: Inventory, market: Market, holders: VolumeHolders
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


def _key(line: Line) -> tuple[str, str]:
    return line.pending.project_id, line.pending.demand_key


def _all_refusals(
    demand: Demand, inventory: Inventory, market: Market, job_id: str | None = None
) -> tuple[Refusal, ...]:
    """The refusals of all nodes and all cloud regions."""
    clouds = market.refusals(demand)
    nodes = refusals_of(demand, inventory, job_id)
    return tuple(clouds) if clouds and nodes == (NOTHING_THERE,) else (*nodes, *clouds)
