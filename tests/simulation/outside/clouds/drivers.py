"""The driver of a provider's machines, as `activities/providers/gcp/driver.py`, with its time."""

from activities.providers.base import CapacityExhausted, NotYet, RequestRefused
from activities.providers.gcp.driver import _answers as answers
from activities.providers.gcp.driver import _is_short as is_short
from activities.providers.gcp.errors import GoogleRefusedError, refused
from activities.providers.gcp.operations import OPERATION_LIMIT_S, lasted
from tests.simulation.contracts import Temporal, Until
from tests.simulation.outside.clouds.compute import Compute
from tests.simulation.outside.clouds.faults import Asking, Requests
from tests.simulation.outside.clouds.instances import Body, Instance, Operation, check_type
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec


class Driver:
    """One provider's machines; each method yields the time that it takes, and returns the answer.

    Raises: every method RequestRefused, CapacityExhausted, Unavailable, NotYet, as the real one.
    """

    def __init__(
        self, temporal: Temporal, requests: Requests, compute: Compute, provider_id: str
    ) -> None:
        """Raises: RequestRefused, as gcp/driver.py:google_machines."""
        requests.need_key(provider_id)
        self._temporal = temporal
        self._requests = requests
        self._compute = compute
        self._provider_id = provider_id

    def find(self, name: str, zone: str) -> Asking[MachineObservation | None]:
        """The machine with its host key, which is read at the same instant."""
        with answers():
            instance = yield from self._get(name, zone)
        return None if instance is None else instance.seen(self._temporal.now())

    def create(
        self, name: str, offer: MachineOffer, spec: MachineSpec
    ) -> Asking[MachineObservation]:
        if "region" not in spec.tags:
            raise RequestRefused(f"{name}: its tags name no region, whose key it would let in")
        check_type(name, offer)
        body = Body(self._provider_id, name, offer, spec)
        asked = f"instance {name}"
        with answers():
            try:
                operation = yield from self._requests.change(
                    self._provider_id, asked, lambda: self._compute.insert(body), offer.zone
                )
                yield from self._finish(operation, asked)
            except GoogleRefusedError as refusal:
                if not refusal.is_there_already:
                    raise
        found = yield from self.find(name, offer.zone)
        if found is None:
            raise NotYet(f"{name}: was requested, and is not listed in {offer.zone} yet")
        return found

    def terminate(self, name: str, zone: str) -> Asking[str]:
        """By the number of the instance; by its name where Google does not find the number."""
        with answers():
            instance = yield from self._get(name, zone)
            if instance is None or instance.status == "STOPPING":
                return ""
            if (yield from self._delete(instance, by_number=True)):
                return ""
            left = yield from self._get(name, zone)
            if left is not instance or left.status == "STOPPING":
                return ""
            if not (yield from self._delete(left, by_number=False)):
                return ""
        return (
            f"instance {name}: deleted by its name, because its number {instance.number} was not "
            f"found"
        )

    def billed_period(
        self, name: str, zone: str, machine_id: str | None
    ) -> Asking[MachineObservation]:
        def look() -> list[Operation]:
            found = self._compute.operations(self._provider_id, name, zone)
            if machine_id:
                return [each for each in found if str(each.target_id) == machine_id]
            return found

        with answers():
            operations = yield from self._requests.read(
                self._provider_id, f"operations of {name}", look, zone
            )
        return lasted(operations)

    def list_owned(self) -> Asking[list[tuple[str, str]]]:
        """The names and zones, of which each page is as old as the first."""
        found = self._compute.listed(self._provider_id)
        with answers():
            yield from self._requests.read(
                self._provider_id, "instances of every zone", lambda: None
            )
        return [(each.name, each.zone) for each in found]

    def _get(self, name: str, zone: str) -> Asking[Instance | None]:
        return self._requests.read(
            self._provider_id,
            f"instance {name}",
            lambda: self._compute.get(self._provider_id, name, zone),
            zone,
        )

    def _delete(self, instance: Instance, *, by_number: bool) -> Asking[bool]:
        return self._requests.change(
            self._provider_id,
            f"instance {instance.name}",
            lambda: self._compute.delete(instance, by_number=by_number),
            instance.zone,
        )

    def _finish(self, operation: Operation, asked: str) -> Asking[None]:
        """Wait for an insert and raise its error; while it still runs, return without one."""
        if not operation.end_time:
            yield Until(operation.done, OPERATION_LIMIT_S)
        for error in operation.error.errors:
            if is_short(error.code):
                raise CapacityExhausted(error.message)
            raise refused(asked, operation.http_error_status_code, error.code, error.message)
