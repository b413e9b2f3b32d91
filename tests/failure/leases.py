"""Leases of nodes in a broken world: a machine is there, or it is not, and its node hears of it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.lifecycles import Record
from workflows.contracts.machines import MachineObservation, MachineOffer
from workflows.contracts.statuses import LeaseStatus, MachineState
from workflows.effects import leases, placement

NOBODY = ""


@dataclass
class NodeLeases:
    """The effects of nodes whose machines are leased for them."""

    machines_of: dict[str, LeaseStatus] = field(default_factory=dict)
    """Each lease, in the order of their making, and how far it is."""
    holder_workflow: str = NOBODY
    withdrawn: list[str] = field(default_factory=list)
    client: Client | None = None
    rows: dict[str, Record] = field(default_factory=dict)
    """What was written last of each resource."""

    @property
    def machines_there(self) -> list[str]:
        """Leases whose machines cost money now."""
        return [one for one, status in self.machines_of.items() if not status.is_final]

    async def acquire_lease(self, asked: leases.AcquireLease) -> leases.LeaseAcquired:
        there = self.machines_there
        known = asked.lease_id in self.machines_of
        lease_id = asked.lease_id if known or not there else there[-1]
        if lease_id not in self.machines_of:
            self.machines_of[lease_id] = LeaseStatus.READY
            await self._hear("machine_ready", _ready(lease_id, asked.machine.offers[0]))
            return leases.LeaseAcquired(lease_id=lease_id, status=LeaseStatus.CREATING)
        status = self.machines_of[lease_id]
        ready = _ready(lease_id, asked.machine.offers[0]) if lease_id in there else None
        return leases.LeaseAcquired(lease_id=lease_id, status=status, ready=ready)

    async def release_lease(self, asked: leases.ReleaseLease) -> leases.LeaseReleased:
        """It ends after it was asked for, and not at once; a run that is over is not heard."""
        left = self.machines_there
        row = self.rows.get(asked.node_id)
        if row is not None and row.sequence > asked.sequence:
            return leases.LeaseReleased(left=tuple(left), sequence=row.sequence)
        self.machines_of |= dict.fromkeys(left, LeaseStatus.RELEASED)
        return leases.LeaseReleased(left=tuple(left))

    def withdraw_allocations(
        self, asked: placement.WithdrawAllocations
    ) -> placement.AllocationsWithdrawn:
        self.withdrawn.append(asked.reason)
        return placement.AllocationsWithdrawn()

    async def take_machine(self, reason: str) -> None:
        """Its provider ends it, and its lease tells its node, twice."""
        (lease_id,) = self.machines_there
        self.machines_of[lease_id] = LeaseStatus.RELEASED
        for _ in range(2):
            await self._hear("machine_lost", MachineLost(lease_id=lease_id, reason=reason))

    async def end_lease(self, reason: str) -> None:
        """Its deadline comes near, and its lease tells its node, twice."""
        (lease_id,) = self.machines_there
        ending = LeaseEnding(lease_id=lease_id, reason=reason, ends_at=datetime.now(UTC))
        for _ in range(2):
            await self._hear("lease_ending", ending)

    async def _hear(self, signal: str, news: Contract) -> None:
        """Silent when it is gone."""
        if self.client is None:
            raise RuntimeError("no client")
        try:
            await self.client.get_workflow_handle(self.holder_workflow).signal(signal, news)
        except RPCError as cause:
            if cause.status is not RPCStatusCode.NOT_FOUND:
                raise


def _ready(lease_id: str, offer: MachineOffer) -> MachineReady:
    seen = MachineObservation(state=MachineState.RUNNING, host="10.0.0.1", minion_id="SHA256:key")
    return MachineReady(lease_id=lease_id, seen=seen, offer=offer)
