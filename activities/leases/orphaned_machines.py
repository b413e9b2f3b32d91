"""Orphaned machines, which carry our ownership label and have no lease; people decide on them."""

from dataclasses import dataclass

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.leases.reconciliation import leases_of
from activities.providers.base import Driver, NotYet
from activities.providers.call_slots import urgent
from activities.providers.machines import asked_of
from activities.providers.registry import driver_of, kind_of
from workflows.contracts.errors import REFUSED
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState, ProviderKind
from workflows.effects.machines import TerminateOrphanedMachine
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.leases.reconciliation import Leased


@dataclass(frozen=True)
class Listed:
    """A machine as its provider lists it, and the lease that names it."""

    name: str
    seen: MachineObservation
    lease: Leased | None

    @property
    def is_held(self) -> bool:
        """Whether a lease that has not ended holds the machine in this zone."""
        return self.lease is not None and self.lease.holds(self.seen.zone)


def listed_machines(provider_id: str, kind: ProviderKind) -> list[Listed]:
    """All machines with our ownership label at a provider, sorted by name and zone. Blocks.

    A provider kind that cannot create machines has none, nor one whose machines others end.
    Raises: ProviderError, when the provider does not answer or refuses.
    """
    if kind_of(kind).driver is None or not traits_of(kind).ends_machines:
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
    """Terminate an orphaned machine at its provider, and check that the machine is gone.

    Raises: Refused, when a lease holds the machine; NotYet, when the machine still exists; and
    the failures of providers.
    """

    def terminate(driver: Driver) -> MachineObservation:
        lease = leases_of(command.provider_id, {command.machine_name}).get(command.machine_name)
        if lease is not None and lease.holds(command.zone):
            raise ApplicationError(
                f"machine {command.machine_name}: lease {lease.lease_id} holds it", type=REFUSED
            )
        with urgent():
            driver.terminate(command.machine_name, command.zone)
            left = driver.find(command.machine_name, command.zone)
        if left is not None:
            raise NotYet(f"machine {command.machine_name}: is still {left.state}")
        return MachineObservation(state=MachineState.GONE)

    return await asked_of(command, terminate)
