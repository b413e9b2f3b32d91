"""Telling the resource that a machine is for that it is ready, or lost."""

from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, LeaseEvent
from workflows.contracts.leases import MachineLost, MachineReady
from workflows.contracts.machines import MachineObservation, MachineOffer
from workflows.effects.leases import NotifyHolder, notify_holder
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import EventWriter


class Holder:
    """Who a lease is for. What it is told may come twice, and late: it names the lease."""

    def __init__(self, holder_id: str, lease_id: str, record_event: EventWriter) -> None:
        self.id = holder_id
        self._lease_id = lease_id
        self._record_event = record_event
        """Writes an event that leaves the lease's status as it is."""

    async def tell_ready(self, seen: MachineObservation, offer: MachineOffer) -> bool:
        """Whether there is somebody who has heard it; where that cannot be known, there is."""
        ready = MachineReady(lease_id=self._lease_id, seen=seen, offer=offer)
        return await self._tell(NotifyHolder(holder_id=self.id, ready=ready))

    async def tell_lost(self, lost: MachineLost) -> None:
        await self._tell(NotifyHolder(holder_id=self.id, lost=lost))

    async def _tell(self, told: NotifyHolder) -> bool:
        try:
            return (await notify_holder(told)).is_there
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            message = f"{self.id} could not be told: {cause_of(failure)[1]}"
        await self._record_event(Event(type=LeaseEvent.HOLDER_NOT_NOTIFIED, message=message))
        return True
