"""The driver of Compute Engine: machines, and their SSH host keys, which Google vouches for."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from activities.providers.base import (
    CapacityExhausted,
    KeyMistakeError,
    NotYet,
    RequestRefused,
    Unavailable,
)
from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.errors import (
    GoogleRefusedError,
    GoogleUnavailableError,
    KeyRefusedError,
    must_be_ours,
    naming_request,
    refused,
)
from activities.providers.gcp.instance_bodies import instance_body, shown
from activities.providers.gcp.names import LABEL
from activities.providers.gcp.operations import awaited, lasted, operations_of
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession, google_session
from activities.providers.prices import priced_catalogue
from activities.secrets.credentials import CredentialsError
from activities.secrets.platform_key import fingerprint_of
from activities.secrets.region_keys import region_public_key
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState, ProviderKind
from workflows.rules.catalogue.clouds import CloudCatalogue

SHORT = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "STOCKOUT",
    "INSUFFICIENT_CAPACITY",
    "UNSUPPORTED_OPERATION",
    "RESOURCE_NOT_READY",
    "QUOTA_EXCEEDED",
    "QUOTAEXCEEDED",
)
"""The starts of reasons, in capitals, for which another zone, region or type may have capacity.
Google also gives `UNSUPPORTED_OPERATION` for a machine that was preempted during its creation."""
HOST_KEYS = "hostkeys/"
KEY_KIND = "ssh-ed25519"


@dataclass(frozen=True)
class OwnedInstance:
    """The `OwnedMachine` of one instance.

    instance: as Google lists it; catalogue: whose prices the observation has.
    """

    instance: Any
    zone: str
    catalogue: CloudCatalogue

    @property
    def machine_name(self) -> str:
        return str(self.instance.name)

    @property
    def seen(self) -> MachineObservation:
        return shown(self.instance, self.zone, self.catalogue)


class GoogleMachines:
    """The `Driver` (see `activities/providers/base.py`) of a Google provider's machines.

    catalogue: whose prices the observations have; None for the prices of the files.
    """

    def __init__(
        self, session: GoogleSession, provider_id: str, catalogue: CloudCatalogue | None = None
    ) -> None:
        self._session = session
        self._provider_id = provider_id
        self._catalogue = catalogue or gcp_catalogue()

    def find(self, name: str, zone: str) -> MachineObservation | None:
        with _answers():
            instance = self._instance(name, zone)
            if instance is None:
                return None
            self._must_be_ours(instance)
            observation = shown(instance, zone, self._catalogue)
            has_address = observation.host is not None or observation.internal_host is not None
            if observation.state is MachineState.RUNNING and has_address:
                return observation.model_copy(update=self._proof(name, zone))
            return observation

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        """Create the machine, or find the one that has the name.

        The machine lets in the key of the region that its tag `region` names.
        Raises: NotYet, when Google does not list the machine yet; Unavailable, CapacityExhausted,
        RequestRefused.
        """
        body = instance_body(
            name,
            offer,
            spec,
            owner=(self._provider_id, self._session.project_id),
            public_key=region_public_key(_region_of(name, spec)),
        )
        with _answers():
            try:
                operation = self._insert(offer.zone, body)
                self._finish(operation, offer.zone, f"instance {name}")
            except GoogleRefusedError as refusal:
                if not refusal.is_there_already:
                    raise
        found = self.find(name, offer.zone)
        if found is None:
            raise NotYet(f"{name}: was requested, and is not listed in {offer.zone} yet")
        return found

    def terminate(self, name: str, zone: str) -> str:
        """Request the machine's termination; silent when it does not exist.

        By its number, so that a late deletion spares a newer machine with this name. If Google does
        not find the number although it still shows the machine with it, by its name.

        Raises: Unavailable, CapacityExhausted, RequestRefused.
        """
        with _answers():
            instance = self._instance(name, zone)
            if instance is None:
                return ""
            self._must_be_ours(instance)
            if self._is_ending(instance, zone) or self._delete(name, zone, str(instance.id)):
                return ""
            left = self._instance(name, zone)
            if left is None or left.id != instance.id or self._is_ending(left, zone):
                return ""
            if not self._delete(name, zone, name):
                return ""
        return (
            f"instance {name}: deleted by its name, because its number {instance.id} was not found"
        )

    def billed_period(self, name: str, zone: str, machine_id: str | None) -> MachineObservation:
        with _answers():
            return lasted(operations_of(self._session, name, zone, machine_id))

    def list_owned(self) -> Sequence[OwnedInstance]:
        from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

        request = compute_v1.AggregatedListInstancesRequest(
            project=self._session.project_id,
            filter=f"labels.{LABEL}={self._provider_id}",
        )
        owned = []
        # A zone that cannot be read fails the whole list; Google sends partial lists on request.
        with _answers(), naming_request("instances of every zone"):
            pages = self._instances.aggregated_list(
                request=request, timeout=ANSWER_LIMIT_S, retry=None
            )
            for scope, found in pages:
                zone = scope.rpartition("/")[2]
                owned += [OwnedInstance(each, zone, self._catalogue) for each in found.instances]
        return owned

    # ── the calls to Google ─────────────────────────────────────────────────────────────────

    @property
    def _instances(self) -> Any:
        from google.cloud import compute_v1  # noqa: PLC0415

        return self._session.compute(compute_v1.InstancesClient)

    def _instance(self, name: str, zone: str) -> Any:
        try:
            with naming_request(f"instance {name}"):
                return self._instances.get(
                    project=self._session.project_id,
                    zone=zone,
                    instance=name,
                    timeout=ANSWER_LIMIT_S,
                    retry=None,
                )
        except GoogleRefusedError as refusal:
            if refusal.is_missing:
                return None
            raise

    def _is_ending(self, instance: Any, zone: str) -> bool:
        """Whether the machine is being deleted; Google refuses a second deletion as not ready."""
        return shown(instance, zone, self._catalogue).state is MachineState.ENDING

    def _delete(self, name: str, zone: str, key: str) -> bool:
        """Request the deletion by number or name; False when Google does not find the machine."""
        try:
            with naming_request(f"instance {name}"):
                self._instances.delete_unary(
                    project=self._session.project_id,
                    zone=zone,
                    instance=key,
                    timeout=ANSWER_LIMIT_S,
                    retry=None,
                )
        except GoogleRefusedError as refusal:
            if refusal.is_missing:
                return False
            raise
        return True

    def _must_be_ours(self, instance: Any) -> None:
        must_be_ours(f"instance {instance.name}", instance.labels.get(LABEL), self._provider_id)

    def _insert(self, zone: str, body: Any) -> Any:
        """Insert without a request id, as a repeated id answers for an earlier machine."""
        with naming_request(f"instance {body.name}"):
            return self._instances.insert_unary(
                project=self._session.project_id,
                zone=zone,
                instance_resource=body,
                timeout=ANSWER_LIMIT_S,
                retry=None,
            )

    def _finish(self, operation: Any, zone: str, asked: str) -> None:
        """Wait for an insert and raise its error; while it still runs, return without one."""
        operation = awaited(self._session, operation, asked, zone=zone)
        for error in operation.error.errors:
            if _is_short(error.code):
                raise CapacityExhausted(error.message)
            raise refused(asked, operation.http_error_status_code, error.code, error.message)

    def _proof(self, name: str, zone: str) -> dict[str, str | None]:
        """The machine's minion id, or the reason why it has none.

        A machine without one is not used, and can be terminated.
        """
        try:
            key = self._host_key(name, zone)
        except GoogleRefusedError as refusal:
            return {"reason": f"its host key cannot be read: {refusal}"}
        return {"minion_id": None if key is None else fingerprint_of(key)}

    def _host_key(self, name: str, zone: str) -> str | None:
        """The public host key that the machine's guest agent gave to Google; None: not yet."""
        from google.cloud import compute_v1  # noqa: PLC0415

        request = compute_v1.GetGuestAttributesInstanceRequest(
            project=self._session.project_id, zone=zone, instance=name, query_path=HOST_KEYS
        )
        try:
            with naming_request(f"host keys of {name}"):
                attributes = self._instances.get_guest_attributes(
                    request=request, timeout=ANSWER_LIMIT_S, retry=None
                )
        except GoogleRefusedError as refusal:
            if refusal.is_missing:
                return None
            raise
        keys = {item.key: item.value for item in attributes.query_value.items}
        return f"{KEY_KIND} {keys[KEY_KIND]}" if KEY_KIND in keys else None


def google_machines(provider_id: str) -> GoogleMachines:
    """The driver of a provider's machines, with the key to which its row refers and today's prices.

    Raises: RequestRefused, when the provider has no key, or its key is malformed.
    """
    try:
        session = google_session(provider_id)
        return GoogleMachines(session, provider_id, priced_catalogue(ProviderKind.GCP))
    except (CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(f"key of {provider_id}: {error}") from error


def _region_of(name: str, spec: MachineSpec) -> str:
    """The region of a machine. Raises: RequestRefused, when its spec names none."""
    region_id = spec.tags.get("region")
    if region_id is None:
        raise RequestRefused(f"{name}: its tags name no region, whose key it would let in")
    return region_id


def _is_short(reason: str) -> bool:
    return reason.upper().startswith(SHORT)


@contextmanager
def _answers() -> Iterator[None]:
    """Translate Google's errors to the exceptions of a driver."""
    try:
        yield
    except GoogleUnavailableError as error:
        if any(word in str(error).upper() for word in SHORT):
            raise CapacityExhausted(str(error)) from error
        raise Unavailable(str(error)) from error
    except KeyRefusedError as error:
        raise RequestRefused(str(error)) from error
    except GoogleRefusedError as error:
        if _is_short(error.reason):
            raise CapacityExhausted(error.message) from error
        raise RequestRefused(str(error)) from error
