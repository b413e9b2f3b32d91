"""Leases of nodes in the tests' world: each is a real `LeaseLifecycle` on its cloud."""

from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.workflows.fake_cloud import RentedMachines
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseRelease, LeaseRequest, MachineReady
from workflows.contracts.lifecycles import Record
from workflows.contracts.statuses import LeaseStatus
from workflows.effects import leases as leased
from workflows.leases.lease_lifecycle import LeaseLifecycle


@dataclass
class LeasedNodes(RentedMachines):
    """The effects of nodes whose machines are leased for them."""

    leases: dict[str, str] = field(default_factory=dict)
    """Lease to holder, in the order of their making."""
    holders: dict[str, str] = field(default_factory=dict)
    """Holder to the id of its workflow."""
    lease_s: float | None = None
    """After which leases end, however long their machines may live; None: as long as these."""
    client: Client | None = None
    rows: dict[str, Record] = field(default_factory=dict)

    def is_ahead(self, resource_id: str, sequence: int) -> bool:
        row = self.rows.get(resource_id)
        return row is not None and 0 < sequence < row.sequence

    async def acquire_lease(self, asked: leased.AcquireLease) -> leased.LeaseAcquired:
        live = [one for one, holder in self.leases.items() if holder == asked.node_id]
        live = [one for one in live if self._status(one) not in _LEAVING]
        lease_id = asked.lease_id if asked.lease_id in self.leases or not live else live[-1]
        if lease_id not in self.leases:
            self.leases[lease_id] = asked.node_id
            await self._begin(asked)
        status = self._status(lease_id)
        row = self.rows.get(lease_id)
        return leased.LeaseAcquired(
            lease_id=lease_id,
            status=status,
            reason=row.status_reason if row else None,
            ready=self._ready(lease_id) if status is LeaseStatus.READY else None,
        )

    def _status(self, lease_id: str) -> LeaseStatus:
        row = self.rows.get(lease_id)
        return LeaseStatus(row.status) if row else LeaseStatus.RESERVED

    def _ready(self, lease_id: str) -> MachineReady | None:
        return next((told for told in self.cloud.ready if told.lease_id == lease_id), None)

    async def _begin(self, asked: leased.AcquireLease) -> None:
        claim = asked.machine
        request = LeaseRequest(
            lease_id=asked.lease_id,
            account_id="acc-1",
            region_id=asked.region_id,
            provider_id=claim.provider_id,
            provider_kind=claim.provider_kind,
            machine_name=f"baseload-{asked.lease_id}",
            holder_id=asked.node_id,
            offers=claim.offers,
            spec=claim.spec,
            deadline=asked.at + timedelta(seconds=self.lease_s or claim.spec.lifetime_s),
        )
        if self.client is None:
            raise RuntimeError("no client")
        await self.client.start_workflow(
            LeaseLifecycle.run, request, id=_id_of(asked.lease_id), task_queue=queues.MAIN
        )

    async def release_lease(self, asked: leased.ReleaseLease) -> leased.LeaseReleased:
        held = [one for one, holder in self.leases.items() if holder == asked.node_id]
        left = [one for one in held if not self._status(one).is_final]
        row = self.rows.get(asked.node_id)
        if row is not None and row.sequence > asked.sequence:
            return leased.LeaseReleased(left=tuple(left), sequence=row.sequence)
        for lease_id in left:
            if self._status(lease_id) is LeaseStatus.RELEASING:
                continue
            ended = LeaseRelease(reason=asked.reason, by_holder=True)
            await self._signal(_id_of(lease_id), "release", ended)
        return leased.LeaseReleased(left=tuple(left))

    async def notify_holder(self, asked: leased.NotifyHolder) -> leased.HolderNotified:  # type: ignore[override]
        told = super().notify_holder(asked)
        workflow_id = self.holders.get(asked.holder_id)
        if workflow_id is None:
            return told
        if asked.ready is not None:
            await self._signal(workflow_id, "machine_ready", asked.ready)
        if asked.ending is not None:
            await self._signal(workflow_id, "lease_ending", asked.ending)
        if asked.lost is not None:
            await self._signal(workflow_id, "machine_lost", asked.lost)
        return told

    async def _signal(self, workflow_id: str, signal: str, argument: Contract) -> None:
        """Silent when it is gone."""
        if self.client is None:
            raise RuntimeError("no client")
        try:
            await self.client.get_workflow_handle(workflow_id).signal(signal, argument)
        except RPCError as cause:
            if cause.status is not RPCStatusCode.NOT_FOUND:
                raise


_LEAVING = (LeaseStatus.RELEASING, LeaseStatus.RELEASED, LeaseStatus.REFUSED)


def _id_of(lease_id: str) -> str:
    return f"lease/{lease_id}"
