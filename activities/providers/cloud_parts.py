"""What a provider has once in its cloud: found or made, removed; and its key, forgotten."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.providers.base import ProviderError, RequestRefused
from activities.providers.gcp.project import GcpProject
from activities.providers.gcp.region_resources import GcpRegion
from activities.secrets.credentials import forget_credentials
from workflows.contracts.base import Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.providers import Check, CloudResource
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import CloudResourceReport, ForgetProviderKey, ProviderResource
from workflows.effects.regions import RegionResource


class CloudProject(Protocol):
    """A provider's project, account or tenancy in a cloud, by its key."""

    def check(self) -> tuple[Check, ...]: ...

    def make(self, resource: str) -> CloudResource: ...

    def remove(self, resource: str) -> CloudResource: ...


PROJECTS: dict[ProviderKind, Callable[[str], CloudProject]] = {ProviderKind.GCP: GcpProject}
"""What makes the project of one provider, by its id."""


@activity.defn
def ensure_provider_resource(command: ProviderResource) -> CloudResourceReport:
    """Find one of a provider's own things in its cloud, else make it."""
    with translated_errors():
        project = PROJECTS[command.kind](command.provider_id)
        return CloudResourceReport(resource=project.make(command.resource))


@activity.defn
def remove_provider_resource(command: ProviderResource) -> CloudResourceReport:
    """Remove one of a provider's own things from its cloud; silent when it is not there."""
    with translated_errors():
        project = PROJECTS[command.kind](command.provider_id)
        return CloudResourceReport(resource=project.remove(command.resource))


@activity.defn
def forget_provider_key(command: ForgetProviderKey) -> Done:
    """Remove the key that was given for a provider; one that is elsewhere stays there."""
    forget_credentials(command.provider_id)
    return Done()


@contextmanager
def translated_errors() -> Generator[None, None, None]:
    """Let a provider's answers reach the workflow by their kind: what was refused stays refused."""
    try:
        yield
    except RequestRefused as refusal:
        raise ApplicationError(str(refusal), type=REFUSED) from refusal
    except ProviderError as error:
        raise ApplicationError(str(error), type=error.kind) from error


class CloudRegionDriver(Protocol):
    """One region of a cloud, by the key of a provider."""

    def make(self, resource: str) -> CloudResource: ...

    def remove(self, resource: str) -> CloudResource: ...


REGIONS: dict[ProviderKind, Callable[[str, str], CloudRegionDriver]] = {ProviderKind.GCP: GcpRegion}
"""What makes a place, by its provider's id and what the cloud calls it."""


@activity.defn
def ensure_region_resource(command: RegionResource) -> CloudResourceReport:
    """Find one of a region's own things in its cloud, else make it."""
    with translated_errors():
        return CloudResourceReport(resource=_place(command).make(command.resource))


@activity.defn
def remove_region_resource(command: RegionResource) -> CloudResourceReport:
    """Remove one of a region's own things from its cloud; silent when it is not there."""
    with translated_errors():
        return CloudResourceReport(resource=_place(command).remove(command.resource))


def _place(command: RegionResource) -> CloudRegionDriver:
    if command.kind not in REGIONS:
        raise RequestRefused(f"region {command.region_id}: {command.kind} has no regions")
    return REGIONS[command.kind](command.provider_id, command.cloud_region)
