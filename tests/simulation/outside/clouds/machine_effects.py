"""The effects of one machine, as `activities/providers/machines.py` and `orphaned_machines.py`."""

from collections.abc import Mapping
from datetime import datetime

from temporalio.exceptions import ApplicationError

from activities.providers.base import NotYet, ProviderError
from activities.providers.machines import GONE, PERIOD_LIMIT
from activities.providers.machines import _translated_errors as translated_errors
from tests.simulation.contracts import Attempt, Rows, Steps, Temporal
from tests.simulation.outside.clouds.compute import Compute
from tests.simulation.outside.clouds.drivers import Driver
from tests.simulation.outside.clouds.faults import Asking, Call, Requests
from workflows.contracts.errors import REFUSED, STALE
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import LeaseStatus, MachineState
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    TerminateMachine,
    TerminateOrphanedMachine,
)
from workflows.effects.providers import ListOwnedMachines, OwnedMachinesListed
from workflows.rules.leases.reconciliation import Leased


class MachineEffects:
    """Creates, describes and terminates machines of all providers."""

    rows: Rows

    def __init__(self, temporal: Temporal, requests: Requests, compute: Compute) -> None:
        self._temporal = temporal
        self._requests = requests
        self._compute = compute
        self._begun: dict[str, datetime] = {}
        """When the first attempt to terminate began, by activity."""
        self._remarks: dict[str, str] = {}
        """What an attempt leaves to the next ones in its last heartbeat, by activity."""

    @property
    def effects(self) -> Mapping[str, Call]:
        return {
            "create_machine": self.create_machine,
            "describe_machine": self.describe_machine,
            "wait_for_machine": self.wait_for_machine,
            "terminate_machine": self.terminate_machine,
            "terminate_orphaned_machine": self.terminate_orphaned_machine,
            "list_owned_machines": self.list_owned_machines,
        }

    def create_machine(self, attempt: Attempt, command: CreateMachine) -> Steps:
        """Raises: NotYet, while a machine that was created for an earlier offer has the name;
        Stale."""
        with translated_errors(command):
            driver, name = self.driver_of(command.provider_id), command.machine_name
            self._raise_if_stale(command)
            found = yield from driver.find(name, command.zone)
            if found is None:
                found = yield from driver.create(name, command.offer, command.spec)
            if found.offer_label in ("", command.offer.label):
                return found
            yield from driver.terminate(name, command.zone)
            raise NotYet(f"{name}: created as {found.offer_label}, and is being terminated first")

    def describe_machine(self, attempt: Attempt, command: DescribeMachine) -> Steps:
        with translated_errors(command):
            driver = self.driver_of(command.provider_id)
            return (yield from driver.find(command.machine_name, command.zone)) or GONE

    def wait_for_machine(self, attempt: Attempt, command: DescribeMachine) -> Steps:
        """Raises: NotYet, while the machine is being created or is not reachable yet."""
        with translated_errors(command):
            driver = self.driver_of(command.provider_id)
            seen = (yield from driver.find(command.machine_name, command.zone)) or GONE
            is_running = seen.state is MachineState.RUNNING
            if seen.state is MachineState.MAKING or (is_running and not seen.is_reachable):
                raise NotYet(f"{command.machine_name}: {seen.state}, no host key yet")
            return seen

    def terminate_machine(self, attempt: Attempt, command: TerminateMachine) -> Steps:
        """Raises: NotYet, while Google shows the machine, or does not say when it ended; Stale."""
        asked, name, zone = attempt.request_id, command.machine_name, command.zone
        waited = self._temporal.now() - self._begun.setdefault(asked, self._temporal.now())
        with translated_errors(command):
            driver = self.driver_of(command.provider_id)
            self._raise_if_stale(command)
            if remark := (yield from driver.terminate(name, zone)):
                self._remarks[asked] = remark
            if (left := (yield from driver.find(name, zone))) is not None:
                raise NotYet(f"{name}: the machine is {left.state}, and not gone")
            gone = yield from _billed_period(driver, command, or_none=waited > PERIOD_LIMIT)
        self._begun.pop(asked, None)  # A late attempt may have ended before.
        return gone.model_copy(update={"reason": self._remarks.pop(asked, "")})

    def terminate_orphaned_machine(
        self, attempt: Attempt, command: TerminateOrphanedMachine
    ) -> Steps:
        """Raises: Refused, when a lease holds the machine; NotYet, when it still exists."""
        name, zone = command.machine_name, command.zone
        with translated_errors(command):
            driver = self.driver_of(command.provider_id)
            lease = leases_of(self.rows, command.provider_id, {name}).get(name)
            if lease is not None and lease.holds(zone):
                raise ApplicationError(
                    f"machine {name}: lease {lease.lease_id} holds it", type=REFUSED
                )
            yield from driver.terminate(name, zone)
            if (left := (yield from driver.find(name, zone))) is not None:
                raise NotYet(f"machine {name}: is still {left.state}")
            return GONE

    def list_owned_machines(self, attempt: Attempt, command: ListOwnedMachines) -> Steps:
        try:
            owned = yield from self.driver_of(command.provider_id).list_owned()
        except ProviderError as error:
            raise ApplicationError(str(error), type=error.kind) from error
        return OwnedMachinesListed(names=tuple(sorted(name for name, _ in owned)))

    def driver_of(self, provider_id: str) -> Driver:
        """Raises: RequestRefused, when the provider has no key."""
        return Driver(self._temporal, self._requests, self._compute, provider_id)

    def _raise_if_stale(self, command: CreateMachine | TerminateMachine) -> None:
        """Raises: Stale, when the lease's row is ahead of the command."""
        if command.sequence and self.rows.sequence_of(command.lease_id) > command.sequence:
            message = f"{command.lease_id}: asked for its machine by an earlier step"
            raise ApplicationError(message, type=STALE, non_retryable=True)


def _billed_period(
    driver: Driver, command: TerminateMachine, *, or_none: bool
) -> Asking[MachineObservation]:
    """As activities/providers/machines.py:_billed_period. Raises: NotYet."""
    if command.provider_machine_id is None and not command.was_unseen:
        return GONE
    try:
        return (
            yield from driver.billed_period(
                command.machine_name, command.zone, command.provider_machine_id
            )
        )
    except ProviderError as error:
        if not or_none:
            raise NotYet(f"{command.machine_name}: gone, not known since when: {error}") from error
        return GONE


def leases_of(rows: Rows, provider_id: str, names: set[str]) -> dict[str, Leased]:
    """As activities/leases/reconciliation.py:leases_of: those with these names, and all ready."""
    return {
        view.name: Leased(view.lease_id, view.zone, LeaseStatus(view.status))
        for view in rows.leases_of(provider_id)
        if view.name in names or view.status == LeaseStatus.READY
    }
