"""Allocations: reserved, confirmed, released, freed, withdrawn.

As activities/placement/allocations.py, withdrawals.py and activities/nodes/ephemeral.py.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from activities.leases.shortages import shortage_kept
from activities.nodes.ephemeral import LEAVING
from tests.simulation.contracts import Attempt, Handler
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Allocation, Node
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.artifacts import VolumeAccess
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.machines import Shortage
from workflows.contracts.placement import Refusal
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import AllocationState, NodeStatus, NodeType
from workflows.effects.placement import AllocationsWithdrawn, WithdrawAllocations
from workflows.rules.jobs.artifacts import volumes_of


class TakenError(Exception):
    """A unique index refuses an allocation: another one holds the GPU, the port or the run."""


class Allocations:
    def __init__(self, tables: Tables, connection: Connection, outbox: Outbox) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox

    def effects(self) -> dict[str, Handler]:
        return {"withdraw_allocations": self._withdraw_allocations}

    # ── in the caller's transaction ─────────────────────────────────────────────────────────

    def insert(self, row: Allocation) -> None:
        """As allocations.py:write_allocations.

        Raises: TakenError, as the unique indexes of the tables.
        """
        tables = self._tables
        run = (row.job_id, row.worker, row.attempt)
        if run in tables.allocation_of:
            raise TakenError(f"{run}: has an allocation")
        for index in row.gpu_indices:
            if (row.node_id, index) in tables.gpu_holders:
                raise TakenError(f"{row.node_id}: GPU {index} is held")
            tables.put(tables.gpu_holders, (row.node_id, index), row.id)
        if row.port is not None:
            self.take_port(row, row.port)
        self._take_volumes(row)
        tables.put(tables.allocations, row.id, row)
        tables.put(tables.allocation_of, run, row)
        tables.put(tables.live_on.setdefault(row.node_id, {}), row.id, row)
        tables.put(tables.live_of.setdefault(row.job_id, {}), row.id, row)
        tables.put(tables.not_notified, row.id, row)
        tables.placement_changes()

    def take_port(self, row: Allocation, port: int) -> None:
        """Raises: TakenError."""
        holder = self._tables.port_holders.get((row.node_id, port))
        if holder is not None:
            raise TakenError(f"{row.node_id}: port {port} is held")
        self._tables.put(self._tables.port_holders, (row.node_id, port), row.id)
        self._tables.set(row, port=port)
        self._tables.placement_changes()

    def _take_volumes(self, row: Allocation) -> None:
        """As volume_holds.py:hold_volumes. Raises: TakenError."""
        for volume_id, access in volumes_of(self._tables.jobs[row.job_id].spec):
            holders = self._tables.volume_holders.setdefault(volume_id, {})
            for other in holders.values():
                theirs = dict(volumes_of(self._tables.jobs[other.job_id].spec))[volume_id]
                if VolumeAccess.WRITE in (access, theirs):
                    raise TakenError(f"{volume_id}: {other.job_id} has it")
            self._tables.put(holders, row.id, row)

    def confirm(self, allocation_ids: Collection[str], at: datetime) -> bool:
        """False, with nothing changed: not all are live any more. allocations.py:confirm."""
        rows = [self._tables.allocations.get(each) for each in sorted(set(allocation_ids))]
        held = [row for row in rows if row is not None and row.is_of_job]
        if len(held) < len(allocation_ids):
            return False
        for row in held:
            self._notify(row, AllocationState.RUNNING, at)
        return True

    def set_notified(self, allocation_ids: Iterable[str], at: datetime) -> set[str]:
        """Mark those that are held; return the jobs of those that are live."""
        placed: set[str] = set()
        for each in allocation_ids:
            row = self._tables.allocations.get(each)
            if row is None or row.released_at is not None:
                continue
            placed.add(row.job_id)
            if row.state is AllocationState.HELD:
                self._notify(row, AllocationState.NOTIFIED, at)
        return placed

    def _notify(self, row: Allocation, state: AllocationState, at: datetime) -> None:
        self._tables.set(row, state=state, notified_at=row.notified_at or at)
        self._tables.drop(self._tables.not_notified, row.id)

    def release(
        self,
        job_id: str,
        at: datetime,
        *,
        leaving: Collection[str] = (),
        staying_nodes: Iterable[str] = (),
    ) -> list[str]:
        """Release all allocations of a job: allocations.py:release_allocations."""
        tables = self._tables
        held = [each for each in tables.live_of.get(job_id, {}).values() if each.is_of_job]
        held.sort(key=lambda each: each.id)
        self.stay(staying_nodes)
        left = [
            each
            for each in held
            if each.id in leaving and tables.nodes[each.node_id].status != NodeStatus.ARCHIVED
        ]
        self.free([each for each in held if each not in left], at)
        for each in left:
            tables.set(each, state=AllocationState.LEAVING)
            tables.placement_changes()
        for key, meter in list(tables.meters_of.get(job_id, {}).items()):
            if meter.running:
                tables.set(meter, running=False)
                tables.drop(tables.running_meters.get(meter.payer_id, {}), key)
        requests = [
            self._outbox.enqueue(node_id, "refresh", Refresh(), at)
            for node_id in sorted({each.node_id for each in left})
        ]
        return requests + self.dismiss_ephemeral((each.node_id for each in held), at)

    def free(self, ended: Sequence[Allocation], at: datetime) -> None:
        """Free what they hold, as their runs have ended: allocations.py:free_allocations."""
        for row in ended:
            self._tables.set(row, state=AllocationState.GONE, released_at=at)
            self._leave(row)

    def _leave(self, row: Allocation) -> None:
        """What a live allocation holds is free: GPUs, port, CPUs and memory."""
        tables = self._tables
        tables.drop(tables.live_on[row.node_id], row.id)
        tables.drop(tables.live_of[row.job_id], row.id)
        tables.drop(tables.not_notified, row.id)
        for index in row.gpu_indices:
            tables.drop(tables.gpu_holders, (row.node_id, index))
        if row.port is not None:
            tables.drop(tables.port_holders, (row.node_id, row.port))
        for volume_id, _ in volumes_of(tables.jobs[row.job_id].spec):
            tables.drop(tables.volume_holders[volume_id], row.id)
        node = tables.nodes[row.node_id]
        tables.change(
            node,
            reserved_cpu_count=node.reserved_cpu_count - row.cpu_count,
            reserved_memory_bytes=node.reserved_memory_bytes - row.memory_bytes,
        )

    # ── ephemeral nodes ─────────────────────────────────────────────────────────────────────

    def stay(self, node_ids: Iterable[str]) -> None:
        """Retain ephemeral nodes after their job: ephemeral.py:stay."""
        for node_id in sorted(set(node_ids)):
            node = self._tables.nodes.get(node_id)
            if node is None or node.type != NodeType.EPHEMERAL or node.status in LEAVING:
                continue
            if node.machine is not None:
                kept = node.machine.model_copy(update={"stays": True})
                self._tables.change(node, machine=kept)

    def dismiss_ephemeral(self, node_ids: Iterable[str], at: datetime) -> list[str]:
        """Ask those without a job to be removed: ephemeral.py:dismiss_ephemeral."""
        removal = Removal(force=True, requested_by="the end of its job", reschedules=True)
        nodes = (self._tables.nodes[each] for each in sorted(set(node_ids)))
        return [
            self._outbox.enqueue(node.id, "remove", removal, at)
            for node in nodes
            if self.is_unused(node) and not (node.machine is not None and node.machine.stays)
        ]

    def is_unused(self, node: Node) -> bool:
        """Whether an ephemeral node has no job and is not leaving."""
        if node.type != NodeType.EPHEMERAL or node.status in LEAVING:
            return False
        live = self._tables.live_on.get(node.id, {}).values()
        return not any(each.is_of_job for each in live)

    # ── withdrawals ─────────────────────────────────────────────────────────────────────────

    def _withdraw_allocations(
        self, attempt: Attempt, command: WithdrawAllocations
    ) -> AllocationsWithdrawn:
        """As withdrawals.py:withdraw_allocations."""
        live = self._tables.live_on.get(command.node_id, {}).values()
        jobs = sorted({each.job_id for each in live if each.is_unconfirmed})
        if not jobs:
            return AllocationsWithdrawn()
        with self._tables.write():
            requests = self._withdraw(jobs, command)
        self._connection.between()
        self._outbox.relay_soon(requests)
        self._connection.wake_placement()
        return AllocationsWithdrawn(job_ids=tuple(jobs))

    def _withdraw(self, job_ids: list[str], command: WithdrawAllocations) -> list[str]:
        tables = self._tables
        rows = [
            each
            for job_id in job_ids
            for each in list(tables.live_of[job_id].values())
            if each.is_unconfirmed
        ]
        for row in rows:
            tables.drop(tables.allocations, row.id)
            tables.drop(tables.allocation_of, (row.job_id, row.worker, row.attempt))
            self._leave(row)
        node = tables.nodes[command.node_id]
        self._remember_shortages(node, command.reason, command.at)
        why = Refusal(
            offer_id=node.id, region_id=node.region_id, code="machine", detail=command.reason
        )
        for job_id in job_ids:
            tables.change(tables.jobs[job_id], placement_refusals=(why,))
        return self.dismiss_ephemeral({row.node_id for row in rows} - {node.id}, command.at)

    def _remember_shortages(self, node: Node, reason: str, at: datetime) -> None:
        """All offers of a node whose machine failed: leases/shortages.py:remember_shortages."""
        if node.machine is None or node.type != NodeType.EPHEMERAL:
            return
        for offer in node.machine.offers:
            known = self._tables.shortages.get((node.machine.provider_id, offer.scope))
            if known is None or known.until <= at:
                self.remember_shortage(
                    node.machine.provider_id,
                    offer.scope,
                    reason,
                    at + shortage_kept(node.machine.provider_kind),
                )

    def remember_shortage(self, provider_id: str, scope: str, reason: str, until: datetime) -> None:
        """It replaces an older one of the same scope."""
        shortage = Shortage(scope=scope, reason=reason, until=until)
        self._tables.put(self._tables.shortages, (provider_id, scope), shortage)
        self._tables.placement_changes()
