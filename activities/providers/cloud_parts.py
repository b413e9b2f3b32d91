"""The activities that check a cloud, and create and remove the cloud resources of a provider and
its regions."""

from collections.abc import Generator
from contextlib import contextmanager

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.providers.base import (
    CloudProject,
    CloudRegionDriver,
    ProviderError,
    RequestRefused,
)
from activities.providers.calls import call_provider
from activities.providers.registry import checks_of, kind_of
from workflows.contracts.errors import REFUSED
from workflows.effects.providers import (
    CheckProvider,
    CloudResourceReport,
    ProviderChecked,
    ProviderResource,
)
from workflows.effects.regions import RegionResource


@activity.defn
async def check_cloud(command: CheckProvider) -> ProviderChecked:
    """Run every check of a cloud."""
    with translated_errors():
        checks = await call_provider(
            command.provider_id,
            lambda: checks_of(command.provider_kind, command.provider_id),
        )
    return ProviderChecked(checks=checks)


@activity.defn
async def ensure_provider_resource(command: ProviderResource) -> CloudResourceReport:
    """Find one of a provider's cloud resources, or else create it."""
    with translated_errors():
        resource = await call_provider(
            command.provider_id, lambda: _project(command).make(command.resource)
        )
    return CloudResourceReport(resource=resource)


@activity.defn
async def remove_provider_resource(command: ProviderResource) -> CloudResourceReport:
    """Remove one of a provider's cloud resources; silent when it does not exist."""
    with translated_errors():
        resource = await call_provider(
            command.provider_id, lambda: _project(command).remove(command.resource)
        )
    return CloudResourceReport(resource=resource)


@contextmanager
def translated_errors() -> Generator[None, None, None]:
    """Translate a provider's errors to the error types that workflows know.

    Raises: ApplicationError with the type REFUSED, which is final, or the kind of the error.
    """
    try:
        yield
    except RequestRefused as refusal:
        raise ApplicationError(str(refusal), type=REFUSED) from refusal
    except ProviderError as error:
        raise ApplicationError(str(error), type=error.kind) from error


@activity.defn
async def ensure_region_resource(command: RegionResource) -> CloudResourceReport:
    """Find one of a region's cloud resources, or else create it."""
    with translated_errors():
        resource = await call_provider(
            command.provider_id, lambda: _region(command).make(command.resource)
        )
    return CloudResourceReport(resource=resource)


@activity.defn
async def remove_region_resource(command: RegionResource) -> CloudResourceReport:
    """Remove one of a region's cloud resources; silent when it does not exist."""
    with translated_errors():
        resource = await call_provider(
            command.provider_id, lambda: _region(command).remove(command.resource)
        )
    return CloudResourceReport(resource=resource)


def _project(command: ProviderResource) -> CloudProject:
    kind = kind_of(command.provider_kind)
    return kind.required("project", kind.project)(command.provider_id)


def _region(command: RegionResource) -> CloudRegionDriver:
    kind = kind_of(command.provider_kind)
    return kind.required("region", kind.region)(command.provider_id, command.cloud_region)
