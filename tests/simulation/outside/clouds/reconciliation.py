"""The comparison of Google's list with the leases, as `activities/leases/reconciliation.py`."""

from activities.leases.reconciliation import (
    COMPARED_AT_ONCE,
    MOST_REPORTED,
    MOST_TERMINATED,
    OwnedMachine,
    _in_pieces,
)
from activities.providers.base import ProviderError
from activities.providers.cloud_parts import translated_errors
from tests.simulation.contracts import (
    AlreadyStarted,
    Attempt,
    NotFound,
    Steps,
    Temporal,
    Unavailable,
)
from tests.simulation.outside.clouds.drivers import Driver
from tests.simulation.outside.clouds.faults import Asking
from tests.simulation.outside.clouds.machine_effects import MachineEffects, leases_of
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.machines import OrphanedMachine, OrphanedMachinesFound
from workflows.contracts.providers import NotificationsRequest
from workflows.effects.reconciliation import MachinesReconciled, ReconcileMachines
from workflows.rules.leases.reconciliation import compare


class Reconciliation:
    """The effect `reconcile_machines`."""

    def __init__(self, temporal: Temporal, machines: MachineEffects) -> None:
        self._temporal = temporal
        self._machines = machines

    def reconcile_machines(self, attempt: Attempt, command: ReconcileMachines) -> Steps:
        provider_id, began_at = command.provider_id, self._temporal.now()
        if command.is_ready:
            self._start_listening(command)
        with translated_errors():
            found, orphans = yield from self._reconcile(provider_id)
        for lease_id in found.missing:
            self._tell(workflow_id_of(lease_id), "refresh")
        if orphans:
            listed = tuple(OrphanedMachine(name=name, zone=zone) for name, zone in orphans)
            message = OrphanedMachinesFound(machines=listed[:MOST_REPORTED])
            self._tell(workflow_id_of(provider_id), "orphaned_machines", message)
        if found.failed:
            return found
        self._machines.rows.keep_reconciled(provider_id, began_at)
        return found.model_copy(update={"reconciled_at": began_at})

    def _reconcile(
        self, provider_id: str
    ) -> Asking[tuple[MachinesReconciled, tuple[OwnedMachine, ...]]]:
        """The list is older than the leases, and each piece is compared again before its end."""
        driver, rows = self._machines.driver_of(provider_id), self._machines.rows
        owned = set((yield from driver.list_owned()))
        found = compare(owned, leases_of(rows, provider_id, {name for name, _ in owned}))
        released: list[str] = []
        failed: list[str] = []
        for some in _in_pieces(found.to_release[:MOST_TERMINATED], COMPARED_AT_ONCE):
            leases = leases_of(rows, provider_id, {name for name, _ in some})
            for name, zone in compare(set(some), leases).to_release:
                if error := (yield from _terminated(driver, name, zone)):
                    failed.append(f"{name} in {zone}: {error}")
                else:
                    released.append(name)
        reconciled = MachinesReconciled(
            released=tuple(released),
            unknown=tuple(name for name, _ in found.unknown),
            missing=found.missing,
            failed=tuple(failed),
        )
        return reconciled, found.unknown

    def _start_listening(self, command: ReconcileMachines) -> None:
        """As activities/providers/notifications.py:start_listening; a failure is only logged."""
        request = NotificationsRequest(provider_id=command.provider_id, kind=command.provider_kind)
        workflow_id = f"provider/{command.provider_id}/notifications"
        try:
            self._temporal.start(
                "ProviderNotifications", workflow_id, request, conflict="use_existing"
            )
        except (AlreadyStarted, Unavailable) as cause:
            self._temporal.note(workflow_id, f"could not be started: {cause!r}")

    def _tell(
        self, workflow_id: str, name: str, argument: OrphanedMachinesFound | None = None
    ) -> None:
        """Signal, and let the next reconciliation repeat what has failed."""
        try:
            self._temporal.signal(workflow_id, name, argument)
        except (NotFound, Unavailable) as cause:
            self._temporal.note(workflow_id, f"was not told {name}: {cause!r}")


def _terminated(driver: Driver, name: str, zone: str) -> Asking[str]:
    """Request the termination of a machine; return the error, or an empty text."""
    try:
        yield from driver.terminate(name, zone)
    except ProviderError as error:
        return str(error)
    return ""
