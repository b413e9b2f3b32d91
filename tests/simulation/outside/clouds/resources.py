"""The cloud resources of providers and regions, as `activities/providers/cloud_parts.py`."""

from collections.abc import Mapping

from activities.providers.base import RequestRefused, Unavailable
from activities.providers.cloud_parts import translated_errors as for_workflows
from activities.providers.gcp.errors import (
    GoogleRefusedError,
    GoogleUnavailableError,
    refused,
)
from activities.providers.gcp.operations import OPERATION_LIMIT_S
from activities.providers.gcp.project import translated_errors as of_google
from activities.providers.gcp.project_resources import RESOURCES
from tests.simulation.contracts import Attempt, Steps, Until
from tests.simulation.outside.clouds.faults import Asking, Call, Requests
from tests.simulation.outside.clouds.instances import Operation
from tests.simulation.outside.clouds.projects import Projects
from workflows.contracts.providers import CloudResource
from workflows.effects.providers import CloudResourceReport, ProviderResource
from workflows.effects.regions import RegionResource


class Resources:
    """The effects that create and remove what is there once for a provider or a region."""

    def __init__(self, requests: Requests, projects: Projects) -> None:
        self._requests = requests
        self._projects = projects

    @property
    def effects(self) -> Mapping[str, Call]:
        return {
            "ensure_provider_resource": self.ensure_provider_resource,
            "remove_provider_resource": self.remove_provider_resource,
            "ensure_region_resource": self.ensure_region_resource,
            "remove_region_resource": self.remove_region_resource,
        }

    def ensure_provider_resource(self, attempt: Attempt, command: ProviderResource) -> Steps:
        with for_workflows(), of_google():
            _check_known(command.resource)
            path = yield from self._make(command.provider_id, command.resource)
        return _report(command.resource, path)

    def remove_provider_resource(self, attempt: Attempt, command: ProviderResource) -> Steps:
        with for_workflows(), of_google():
            _check_known(command.resource)
            path = yield from self._remove(command.provider_id, command.resource)
        return _report(command.resource, path)

    def ensure_region_resource(self, attempt: Attempt, command: RegionResource) -> Steps:
        with for_workflows(), of_google():
            name = f"subnetwork/{command.cloud_region}"
            path = yield from self._make(command.provider_id, name)
        return _report(command.resource, path)

    def remove_region_resource(self, attempt: Attempt, command: RegionResource) -> Steps:
        """Raises: Unavailable, also while Google still lists the resource."""
        with for_workflows():
            with of_google():
                name = f"subnetwork/{command.cloud_region}"
                path = yield from self._remove(command.provider_id, name)
                is_left = yield from self._is_there(command.provider_id, name)
            if is_left:
                raise Unavailable(f"{path}: still exists")
        return _report(command.resource, path)

    def _make(self, provider_id: str, name: str) -> Asking[str]:
        """Find or create a part, as gcp/network.py:_make and the functions of gcp/pubsub.py."""
        self._requests.need_key(provider_id)
        parts = self._projects.of(provider_id).parts
        path = parts.path(name)
        if (yield from self._is_there(provider_id, name)):
            return path
        if name == "publisher" and not (yield from self._is_there(provider_id, "sink")):
            raise GoogleUnavailableError(f"sink of {provider_id}: does not exist yet")
        try:
            operation = yield from self._requests.change(
                provider_id, path, lambda: parts.create(name)
            )
        except GoogleRefusedError as refusal:
            if not refusal.is_there_already:
                raise
            raise GoogleUnavailableError(f"{path}: is being made") from refusal
        yield from _finish(operation, path)
        return path

    def _remove(self, provider_id: str, name: str) -> Asking[str]:
        """Remove a part; silent when it is missing."""
        self._requests.need_key(provider_id)
        project = self._projects.of(provider_id)
        path = project.parts.path(name)
        if not (yield from self._is_there(provider_id, name)):
            return path
        what, _, cloud_region = name.partition("/")

        def remove() -> Operation:
            is_used = what == "subnetwork" and project.has_instances_in(cloud_region)
            return project.parts.remove(name, is_used=is_used)

        try:
            operation = yield from self._requests.change(provider_id, path, remove)
            yield from _finish(operation, path)
        except GoogleRefusedError as refusal:
            if not refusal.is_missing:
                raise
        if name == "subscription":
            project.feed.wake()
        return path

    def _is_there(self, provider_id: str, name: str) -> Asking[bool]:
        parts = self._projects.of(provider_id).parts
        return self._requests.read(provider_id, parts.path(name), lambda: parts.is_there(name))


def _check_known(resource: str) -> None:
    """Raises: RequestRefused, for a resource that Google's kind does not have."""
    if resource not in RESOURCES:
        raise RequestRefused(f"{resource}: no such resource")


def _finish(operation: Operation, asked: str) -> Asking[None]:
    """As gcp/operations.py:finish. Raises: GoogleRefusedError, GoogleUnavailableError."""
    if not operation.end_time:
        yield Until(operation.done, OPERATION_LIMIT_S)
    if not operation.end_time:
        raise GoogleUnavailableError(f"{asked}: the operation still runs")
    for error in operation.error.errors:
        raise refused(asked, operation.http_error_status_code, error.code, error.message)


def _report(resource: str, path: str) -> CloudResourceReport:
    return CloudResourceReport(resource=CloudResource(name=resource, path=path))
