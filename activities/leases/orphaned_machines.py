"""Orphaned machines: with our ownership label and without a lease; people decide on them."""

from dataclasses import dataclass

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.leases.reconciliation import leases_of
from activities.providers.base import Driver, NotYet
from activities.providers.machines import asked_of
from activities.providers.registry import driver_of, kind_of
from workflows.contracts.errors import REFUSED
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState, ProviderKind
from workflows.effects.machines import TerminateOrphanedMachine
from workflows.rules.leases.reconciliation import Leased


@dataclass(frozen=True)
class Listed:
    """A machine as its provider lists it, and the lease that names it."""

    name: str
    seen: MachineObservation
    lease: Leased | None

    @property
    def is_held(self) -> bool:
        """There is a lease for it that has not ended, and is at this place."""
        held = self.lease
        return held is not None and not held.status.is_final and held.zone == self.seen.zone


def listed_machines(provider_id: str, kind: ProviderKind) -> list[Listed]:
    """Every machine with our ownership label at a provider, by name and place. Blocks.

    A kind whose machines nobody makes has none. Raises: ProviderError.
    """
    if kind_of(kind).driver is None:
        return []
    owned = driver_of(kind, provider_id).list_owned()
    leases = leases_of(provider_id, {machine.machine_name for machine in owned})
    found = [
        Listed(machine.machine_name, machine.seen, leases.get(machine.machine_name))
        for machine in owned
    ]
    return sorted(found, key=lambda each: (each.name, each.seen.zone))


@activity.defn
async def terminate_orphaned_machine(command: TerminateOrphanedMachine) -> MachineObservation:
    """End it and see that it is gone; one that a lease holds is ended by that lease alone.

    Raises: Refused, NotYet, and what providers answer.
    """

    def end(driver: Driver) -> MachineObservation:
        lease = leases_of(command.provider_id, {command.machine_name}).get(command.machine_name)
        if lease is not None and not lease.status.is_final and lease.zone == command.zone:
            raise ApplicationError(
                f"{command.machine_name}: {lease.lease_id} holds it", type=REFUSED
            )
        driver.terminate(command.machine_name, command.zone)
        if (left := driver.find(command.machine_name, command.zone)) is not None:
            raise NotYet(f"{command.machine_name}: it is {left.state}, and not gone")
        return MachineObservation(state=MachineState.GONE)

    return await asked_of(command, end)
