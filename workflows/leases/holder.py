"""The holder of a lease, and its notification."""

from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, LeaseEvent
from workflows.contracts.leases import LeaseEnding, MachineLost, MachineReady
from workflows.contracts.machines import MachineObservation, MachineOffer
from workflows.effects.leases import HolderNotified, NotifyHolder, notify_holder
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import EventWriter


class Holder:
    """The holder of one lease, which is notified that the machine is ready, ending or lost.

    A notification may arrive twice or late, so it names the lease.

    record_event: writes an event that leaves the lease's status as it is.
    """

    def __init__(self, holder_id: str, lease_id: str, record_event: EventWriter) -> None:
        self.id = holder_id
        self._lease_id = lease_id
        self._record_event = record_event
        self._recorded = ""
        """The last failure for which an event is recorded."""

    async def notify_ready(self, seen: MachineObservation, offer: MachineOffer) -> bool:
        """Notify the holder that the machine is ready. False: the holder does not exist.

        A notification that fails for another reason counts as delivered; the holder polls.
        """
        ready = MachineReady(lease_id=self._lease_id, seen=seen, offer=offer)
        told = await self._notify(NotifyHolder(holder_id=self.id, ready=ready))
        return told is None or told.is_there

    async def notify_ending(self, ending: LeaseEnding) -> bool:
        """Notify the holder that the lease ends as planned. False: the holder does not exist.

        A notification that fails for another reason counts as delivered; the lease repeats it.
        """
        told = await self._notify(NotifyHolder(holder_id=self.id, ending=ending))
        return told is None or told.is_there

    async def notify_lost(self, lost: MachineLost) -> bool:
        """Notify the holder that the machine is lost. False: that failed and is to be repeated.

        A holder whose workflow is lost has not been notified: its next run may have read the lease
        before the loss.
        """
        told = await self._notify(NotifyHolder(holder_id=self.id, lost=lost))
        if told is not None and not told.is_notified:
            await self._record_failure(f"{self.id} could not be notified: its workflow is lost")
            return False
        return told is not None

    async def _notify(self, command: NotifyHolder) -> HolderNotified | None:
        """The answer; None: the holder could not be notified, which an event shows."""
        try:
            return await notify_holder(command)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            await self._record_failure(f"{self.id} could not be notified: {cause_of(failure)[1]}")
        return None

    async def _record_failure(self, message: str) -> None:
        if message != self._recorded:
            self._recorded = message
            event = Event(type=LeaseEvent.HOLDER_NOT_NOTIFIED, message=message)
            await self._record_event(event)
