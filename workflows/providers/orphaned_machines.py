"""Machines of a provider that no lease names, which only a person has terminated."""

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
    """The orphaned machines of a provider: recorded once each, terminated when a person asks."""

    def __init__(self, request: ProviderRequest, record_event: EventWriter) -> None:
        self.known = list(request.known_orphans)
        """Those of which an event was recorded."""
        self._request = request
        self._record_event = record_event

    async def record_found(self, found: OrphanedMachinesFound) -> None:
        """Record each once, however often reconciliation finds it."""
        for machine in found.machines:
            if machine not in self.known:
                self.known.append(machine)
                message = f"{machine.name} in {machine.zone}: has our ownership label and no lease"
                await self._record_event(
                    Event(type=ProviderEvent.ORPHANED_MACHINE, message=message)
                )

    async def terminate(self, commands: Iterable[TerminateOrphan]) -> None:
        """Terminate them all at once; the failure of one does not stop the others."""
        await gather_all(self._terminate(command) for command in commands)

    async def _terminate(self, command: TerminateOrphan) -> None:
        machine = command.machine
        by = f", asked for by {command.requested_by}" if command.requested_by else ""
        try:
            await terminate_orphaned_machine(self._termination(machine), summary=machine.name)
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            why = cause_of(failure)[1]
            place = f"{machine.name} in {machine.zone}"
            message = f"{place}: could not be terminated and may still cost money: {why}{by}"
            await self._record_event(Event(type=ProviderEvent.MACHINE_NOT_ENDED, message=message))
            return
        self.known = [one for one in self.known if one != machine]
        message = f"{machine.name} in {machine.zone}: is gone{by}"
        await self._record_event(Event(type=ProviderEvent.MACHINE_ENDED, message=message))

    def _termination(self, machine: OrphanedMachine) -> TerminateOrphanedMachine:
        return TerminateOrphanedMachine(
            provider_id=self._request.provider_id,
            provider_kind=self._request.kind,
            machine_name=machine.name,
            zone=machine.zone,
        )
