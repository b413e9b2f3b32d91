"""Machines of Compute Engine: found by name, made, ended; their host keys, proven by Google."""

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
from activities.secrets.platform_key import fingerprint_of, platform_public_key
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
"""Beginnings of the reasons for which another zone, region or type may have it, in capitals.
`UNSUPPORTED_OPERATION` is also told of a machine that was preempted while it was being made."""
HOST_KEYS = "hostkeys/"
KEY_KIND = "ssh-ed25519"


@dataclass(frozen=True)
class OwnedInstance:
    """instance: as Google tells of it."""

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
    """See `activities/providers/base.py: Driver`. A place is a zone.

    catalogue: whose prices machines are shown with; None: those of the files.
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
            seen = shown(instance, zone, self._catalogue)
            if seen.state is MachineState.RUNNING and seen.host is not None:
                return seen.model_copy(update=self._proof(name, zone))
            return seen

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        body = instance_body(
            name,
            offer,
            spec,
            owner=(self._provider_id, self._session.project_id),
            public_key=platform_public_key(),
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
            raise NotYet(f"{name}: was asked for, and is not to be seen in {offer.zone} yet")
        return found

    def terminate(self, name: str, zone: str) -> None:
        with _answers():
            instance = self._instance(name, zone)
            if instance is None:
                return
            self._must_be_ours(instance)
            if shown(instance, zone, self._catalogue).state is MachineState.ENDING:
                return  # A second deletion would be told that it is not ready for one.
            try:
                # By its number: done late, it ends no machine that has got the name since.
                with naming_request(f"instance {name}"):
                    self._instances.delete_unary(
                        project=self._session.project_id,
                        zone=zone,
                        instance=str(instance.id),
                        timeout=ANSWER_LIMIT_S,
                        retry=None,
                    )
            except GoogleRefusedError as refusal:
                if not refusal.is_missing:
                    raise

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
        # A zone that cannot be seen fails all of it: partial answers are for who asks for them.
        with _answers(), naming_request("instances of every zone"):
            pages = self._instances.aggregated_list(
                request=request, timeout=ANSWER_LIMIT_S, retry=None
            )
            for scope, found in pages:
                zone = scope.rpartition("/")[2]
                owned += [OwnedInstance(each, zone, self._catalogue) for each in found.instances]
        return owned

    # ── what it is made of ──────────────────────────────────────────────────────────────────

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

    def _must_be_ours(self, instance: Any) -> None:
        must_be_ours(f"instance {instance.name}", instance.labels.get(LABEL), self._provider_id)

    def _insert(self, zone: str, body: Any) -> Any:
        """No request id: a repeated one answers for the machine that was there before."""
        with naming_request(f"instance {body.name}"):
            return self._instances.insert_unary(
                project=self._session.project_id,
                zone=zone,
                instance_resource=body,
                timeout=ANSWER_LIMIT_S,
                retry=None,
            )

    def _finish(self, operation: Any, zone: str, asked: str) -> None:
        """Its error is why there is no machine; one that goes on is looked for later."""
        operation = awaited(self._session, operation, asked, zone=zone)
        for error in operation.error.errors:
            if _is_short(error.code):
                raise CapacityExhausted(error.message)
            raise refused(asked, operation.http_error_status_code, error.code, error.message)

    def _proof(self, name: str, zone: str) -> dict[str, str | None]:
        """Its minion id, or why it has none: without one it is not used, and can be ended."""
        try:
            key = self._host_key(name, zone)
        except GoogleRefusedError as refusal:
            return {"reason": f"its host key cannot be read: {refusal}"}
        return {"minion_id": None if key is None else fingerprint_of(key)}

    def _host_key(self, name: str, zone: str) -> str | None:
        """The public half, as the machine's own agent has told Google; None: not yet."""
        from google.cloud import compute_v1  # noqa: PLC0415

        request = compute_v1.GetGuestAttributesInstanceRequest(
            project=self._session.project_id, zone=zone, instance=name, query_path=HOST_KEYS
        )
        try:
            with naming_request(f"host keys of {name}"):
                told = self._instances.get_guest_attributes(
                    request=request, timeout=ANSWER_LIMIT_S, retry=None
                )
        except GoogleRefusedError as refusal:
            if refusal.is_missing:
                return None
            raise
        keys = {item.key: item.value for item in told.query_value.items}
        return f"{KEY_KIND} {keys[KEY_KIND]}" if KEY_KIND in keys else None


def google_machines(provider_id: str) -> GoogleMachines:
    """The driver of a provider's machines, with the key that its row refers to now, and the prices
    that are known now.

    Raises: RequestRefused, when there is no key, or it is none.
    """
    try:
        session = google_session(provider_id)
        return GoogleMachines(session, provider_id, priced_catalogue(ProviderKind.GCP))
    except (CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(f"key of {provider_id}: {error}") from error


def _is_short(reason: str) -> bool:
    return reason.upper().startswith(SHORT)


@contextmanager
def _answers() -> Iterator[None]:
    """Google's refusals as the four answers of a driver."""
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
