"""Planning rounds, and notifying placed jobs. As activities/placement/planning.py.

An unchanged world is not planned again: a round's answer stays until a row has changed that a round
may see, a shortage has passed, or a job has waited for so long that nodes are held back for it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from temporalio.exceptions import ApplicationError

from activities.nodes.addresses import address_of
from activities.placement.allocations import ContendedError, Placed, _rates_of, placed_of
from activities.placement.assignments import is_there
from activities.placement.no_planner import NO_PLANNER
from tests.simulation.contracts import Attempt, Handler
from tests.simulation.rows_model.allocations import Allocations, TakenError
from tests.simulation.rows_model.bursts import Bursts
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.inventory import PlacementInventory, Queue
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Allocation
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.jobs import EndRequest, Placement, WorkerAssignment
from workflows.contracts.lifecycles import JOB, workflow_id_of
from workflows.contracts.placement import JobRefusals, Plan, PlanningRound, Refusal
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType
from workflows.effects.jobs import FindPlacement, PlacementFound
from workflows.effects.placement import NotifyPlacedJobs, PlacedJobsNotified, PlanPlacements
from workflows.rules.placement.planner import STARVATION_LIMIT, PlanningContext, plan


class Planning:
    def __init__(
        self,
        tables: Tables,
        connection: Connection,
        outbox: Outbox,
        allocations: Allocations,
        inventory: PlacementInventory,
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._allocations = allocations
        self._inventory = inventory
        self.bursts = Bursts(tables, outbox, allocations)
        self._last: tuple[int, datetime, int] | None = None
        """The version that was planned, until when that holds, and how many jobs waited."""

    def effects(self) -> dict[str, Handler]:
        return {
            "plan_placements": self._plan_placements,
            "find_placement": self._find_placement,
            "notify_placed_jobs": self._notify_placed_jobs,
        }

    # ── a planning round ────────────────────────────────────────────────────────────────────

    def _plan_placements(self, attempt: Attempt, command: PlanPlacements) -> PlanningRound:
        """Nothing else happens between the reads and the writes of a round of the model.

        Raises: ApplicationError, when the plan is refused all the same, which the real round says
        after its fifth try.
        """
        now = self._connection.now()
        if (waiting := self.unchanged(now)) is not None:
            return PlanningRound(waiting=waiting)
        try:
            return self._one_round(now, command.limit)
        except (ContendedError, TakenError) as cause:
            raise ApplicationError(f"placement: rows changed during a round: {cause}") from cause

    def unchanged(self, now: datetime) -> int | None:
        """The waiting jobs, where a round would find what the last one has found; else None."""
        if self._last is None:
            return None
        version, until, waiting = self._last
        is_same = version == self._tables.placement_version and now < until
        return waiting if is_same else None

    def _one_round(self, now: datetime, limit: int) -> PlanningRound:
        held = self._inventory.held()
        market = self._inventory.market(now)
        offers = self._inventory.node_offers(now, held)
        gpu_types = (each.gpu_type for each in offers.values() if each.gpu_type)
        queue = self._inventory.queue(gpu_types, now)
        context = PlanningContext(
            now=now,
            held=held.weights,
            market=market,
            volumes=self._inventory.volume_holders(),
            limit=limit,
        )
        made = plan(queue.demands, offers.values(), context)
        refusals = self._changed_refusals(made, queue)
        if not (made.assignments or made.bursts or made.failed or refusals):
            self._remember(now, queue)
            return PlanningRound(waiting=queue.job_count)
        with self._tables.write():
            chosen = [placed_of(each, queue.read, offers) for each in made.assignments]
            self._reserve(chosen, now)
            self._write_refusals(refusals, made.failed)
            requests = self._fail(made.failed, now)
            bursts = [(each, queue.read[each.job_id]) for each in made.bursts]
            requests += self.bursts.make_nodes(bursts, market, now)
        self._connection.between()
        self._outbox.relay_soon(requests)
        placed = len(chosen) + len(bursts)
        if not placed:
            self._remember(now, queue)
        waiting = queue.job_count - placed
        return PlanningRound(
            placed=placed, waiting=waiting, more=placed > 0 and placed == limit and waiting > 0
        )

    def _remember(self, now: datetime, queue: Queue) -> None:
        """Keep the answer until time alone may change it."""
        overdue = (job.waiting_since + STARVATION_LIMIT for job in queue.read.values())
        ends = (shortage.until for shortage in self._tables.shortages.values())
        later = [at for at in (*overdue, *ends) if at > now]
        until = min(later, default=datetime.max.replace(tzinfo=now.tzinfo))
        self._last = self._tables.placement_version, until, queue.job_count

    def _changed_refusals(
        self, made: Plan, queue: Queue
    ) -> dict[tuple[str, str], tuple[Refusal, ...]]:
        """As refusals.py:changed_refusals."""
        stored = self._tables.demand_refusals
        waiting = {(each.project_id, each.demand_key) for each in queue.demands}
        now = {(each.project_id, each.demand_key): each.refusals for each in made.refused}
        changed = {key: why for key, why in now.items() if why != stored.get(key)}
        return changed | {key: () for key in stored if key not in waiting}

    def _write_refusals(
        self,
        changed: dict[tuple[str, str], tuple[Refusal, ...]],
        failed: Sequence[JobRefusals],
    ) -> None:
        for key, why in changed.items():
            if why:
                self._tables.put(self._tables.demand_refusals, key, why)
            else:
                self._tables.drop(self._tables.demand_refusals, key)
        for each in failed:
            self._tables.set(self._tables.jobs[each.job_id], placement_refusals=each.refusals)

    def _reserve(self, chosen: Sequence[Placed], now: datetime) -> None:
        """As allocations.py:reserve.

        Raises: ContendedError, TakenError, when a node has not what the plan took.
        """
        tables = self._tables
        for placed in chosen:
            rates = {}
            for slot, offer in placed.slots:
                cpus, memory = placed.cpus(offer), placed.job.demand.memory_bytes
                node = tables.nodes[slot.node_id]
                reserved = node.reserved_cpu_count + cpus, node.reserved_memory_bytes + memory
                is_free = reserved[0] <= node.cpu_count and reserved[1] <= node.memory_bytes
                if node.status != NodeStatus.ACTIVE or not is_free:
                    raise ContendedError(f"{node.id}: planned {cpus} CPUs, {memory} bytes there")
                tables.change(
                    node, reserved_cpu_count=reserved[0], reserved_memory_bytes=reserved[1]
                )
                rate = _rates_of(placed, slot, offer, now)
                rates[slot.worker] = rate
                self._allocations.insert(
                    Allocation(
                        id=tables.new_id("alc"),
                        job_id=placed.job.job_id,
                        worker=slot.worker,
                        attempt=placed.job.attempt,
                        node_id=slot.node_id,
                        cpu_count=cpus,
                        memory_bytes=memory,
                        gpu_indices=slot.gpu_indices,
                        port=placed.job.demand.port,
                        created_at=now,
                        rates=rate,
                    )
                )
            tables.set(tables.jobs[placed.job.job_id], rates=rates, placement_refusals=())

    def _fail(self, failed: Sequence[JobRefusals], now: datetime) -> list[str]:
        """Cancel these jobs, once each: planning.py:_fail."""
        if not failed:
            return []
        asked = {row.resource_id for row in self._tables.outbox.values() if row.verb == "cancel"}
        return [
            self._outbox.enqueue(
                each.job_id,
                "cancel",
                EndRequest(reason=each.refusals[0].detail, code="quota-exhausted"),
                now,
            )
            for each in failed
            if each.job_id not in asked
        ]

    # ── placements ──────────────────────────────────────────────────────────────────────────

    def _find_placement(self, attempt: Attempt, command: FindPlacement) -> PlacementFound:
        found = self._placements_of(command.job_id)
        job = self._tables.jobs.get(command.job_id)
        placement = next((each for each in found if each.attempt == command.attempt), None)
        return PlacementFound(placement=placement, sequence=job.sequence if job else 0)

    def _placements_of(self, job_id: str) -> list[Placement]:
        """From its live allocations, once all machines are there: assignments.py:placements_of."""
        tables = self._tables
        live = [each for each in tables.live_of.get(job_id, {}).values() if each.is_of_job]
        live.sort(key=lambda each: (each.attempt, each.worker))
        attempts: dict[int, list[Allocation]] = {}
        for each in live:
            attempts.setdefault(each.attempt, []).append(each)
        return [
            Placement(
                job_id=job_id,
                attempt=attempt,
                assignments=tuple(self._assignment(each) for each in held),
            )
            for attempt, held in attempts.items()
            if all(is_there(cast("Any", tables.nodes[each.node_id])) for each in held)
        ]

    def _assignment(self, held: Allocation) -> WorkerAssignment:
        tables = self._tables
        node = tables.nodes[held.node_id]
        facts = self._inventory.facts(node)
        uuids = dict(facts.gpus)
        lease = None if node.machine is None else self._ready_lease(node.id)
        return WorkerAssignment(
            worker=held.worker,
            allocation_id=held.id,
            node=address_of(cast("Any", node), cast("Any", tables.regions[node.region_id])),
            gpu_indices=held.gpu_indices,
            gpu_uuids=tuple(uuids.get(index, str(index)) for index in held.gpu_indices),
            cpu_count=held.cpu_count,
            memory_bytes=held.memory_bytes,
            runtimes=facts.runtimes,
            job_user=facts.job_user,
            ephemeral=node.type == NodeType.EPHEMERAL,
            lease_id=lease,
        )

    def _ready_lease(self, node_id: str) -> str | None:
        leases = self._tables.leases_held.get(node_id, {}).values()
        return max((row.id for row in leases if row.status == LeaseStatus.READY), default=None)

    # ── notifications ───────────────────────────────────────────────────────────────────────

    def _notify_placed_jobs(
        self, attempt: Attempt, command: NotifyPlacedJobs
    ) -> PlacedJobsNotified:
        """Signal `placed` to placed jobs that are not notified: planning.py:notify_placed_jobs."""
        self._show_planner(command)
        placements = self._not_notified(command.limit)
        notified: list[Placement] = []
        closed: list[Placement] = []
        failed: list[str] = []
        for placement in placements:
            try:
                told = self._connection.tell(workflow_id_of(placement.job_id), "placed", placement)
            except ApplicationError:
                failed.append(placement.job_id)
                continue
            (notified if told else closed).append(placement)
        self._connection.between()
        ended = self._set_notified(notified, closed)
        failed += [each.job_id for each in closed if each.job_id not in ended]
        answered = len(notified) + len(ended)
        more = len(placements) >= command.limit and answered > 0
        return PlacedJobsNotified(announced=len(notified), more=more, untold=tuple(failed))

    def _not_notified(self, limit: int) -> list[Placement]:
        """Placements to notify, oldest first: planning.py:_not_notified."""
        oldest: dict[str, datetime] = {}
        nodes = self._tables.nodes
        unmade: set[str] = set()
        for row in self._tables.not_notified.values():
            oldest[row.job_id] = min(oldest.get(row.job_id, row.created_at), row.created_at)
            if not is_there(cast("Any", nodes[row.node_id])):
                unmade.add(row.job_id)
        job_ids = sorted(oldest.keys() - unmade, key=lambda each: (oldest[each], each))
        return [found for job_id in job_ids[:limit] for found in self._placements_of(job_id)]

    def _set_notified(self, notified: list[Placement], closed: list[Placement]) -> set[str]:
        """Release those whose jobs have ended: planning.py:_set_notified."""
        if not notified and not closed:
            return set()
        now, tables = self._connection.now(), self._tables
        requests: list[str] = []
        with tables.write():
            ids = [one for placement in notified for one in placement.allocation_ids]
            for job_id in sorted(self._allocations.set_notified(ids, now)):
                tables.set(tables.jobs[job_id], placement_refusals=())
            asked = {placement.job_id for placement in closed}
            ended = {each for each in asked if tables.jobs[each].status in JOB.final_statuses}
            for job_id in sorted(ended):
                requests += self._allocations.release(job_id, now)
        self._connection.between()
        self._outbox.relay_soon(requests)
        if ended:
            self._connection.wake_placement()
        return ended

    def _show_planner(self, command: NotifyPlacedJobs) -> None:
        """Show or take back that nobody plans: no_planner.py."""
        if not command.has_no_planner and command.refused_before is None:
            return
        tables = self._tables
        with tables.write():
            for job in tables.waiting_jobs.values():
                if command.has_no_planner and self._inventory.is_waiting(job):
                    tables.set(job, placement_refusals=(NO_PLANNER,))
                elif not command.has_no_planner and NO_PLANNER in job.placement_refusals:
                    tables.set(job, placement_refusals=())
