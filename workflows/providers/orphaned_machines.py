"""Machines of a provider that no lease names: people are told of them, and may have them ended."""

from collections.abc import Iterable

from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.events import Event, ProviderEvent
from workflows.contracts.machines import OrphanedMachine, OrphanedMachinesFound, TerminateOrphan
from workflows.contracts.providers import ProviderRequest
from workflows.effects.machines import TerminateOrphanedMachine, terminate_orphaned_machine
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.journal import EventWriter
from workflows.primitives.waiting import gather_all


class OrphanedMachines:
    """They may be at work for somebody: nothing ends them but a person's word."""

    def __init__(self, request: ProviderRequest, record_event: EventWriter) -> None:
        self.known = list(request.known_orphans)
        """Of which people were told."""
        self._request = request
        self._record_event = record_event
        """Writes an event that leaves the provider's status as it is."""

    async def tell(self, found: OrphanedMachinesFound) -> None:
        """Each once, however often the sweep finds it."""
        for machine in found.machines:
            if machine not in self.known:
                self.known.append(machine)
                message = f"{machine.name} in {machine.zone}: has our label, and no lease names it"
                await self._record_event(
                    Event(type=ProviderEvent.ORPHANED_MACHINE, message=message)
                )

    async def end(self, asked: Iterable[TerminateOrphan]) -> None:
        """All at once, each by itself: one that cannot be ended saves no other."""
        await gather_all(self._end(one) for one in asked)

    async def _end(self, asked: TerminateOrphan) -> None:
        machine = asked.machine
        by = f", asked for by {asked.requested_by}" if asked.requested_by else ""
        try:
            await terminate_orphaned_machine(self._command(machine), summary=machine.name)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            message = f"{machine.name} in {machine.zone}: not ended: {cause_of(failure)[1]}{by}"
            await self._record_event(Event(type=ProviderEvent.MACHINE_NOT_ENDED, message=message))
            return
        self.known = [one for one in self.known if one != machine]
        message = f"{machine.name} in {machine.zone}: is gone{by}"
        await self._record_event(Event(type=ProviderEvent.MACHINE_ENDED, message=message))

    def _command(self, machine: OrphanedMachine) -> TerminateOrphanedMachine:
        return TerminateOrphanedMachine(
            provider_id=self._request.provider_id,
            provider_kind=self._request.kind,
            machine_name=machine.name,
            zone=machine.zone,
        )
