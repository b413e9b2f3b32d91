"""The activities that check a provider, create and remove its and its regions' cloud resources,
and delete its key."""

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
from activities.providers.registry import kind_of, unavailable
from activities.secrets.credentials import forget_credentials
from workflows.contracts.base import Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.providers import Check
from workflows.effects.providers import (
    CheckProvider,
    CloudResourceReport,
    ForgetProviderKey,
    ProviderChecked,
    ProviderResource,
)
from workflows.effects.regions import RegionResource
from workflows.rules.catalogue.providers import TRAITS


@activity.defn
def check_provider(command: CheckProvider) -> ProviderChecked:
    """Run every check of a provider."""
    if command.kind not in TRAITS:
        detail = unavailable(command.kind)
        return ProviderChecked(checks=(Check(name="kind", status="failed", detail=detail),))
    with translated_errors():
        return ProviderChecked(checks=kind_of(command.kind).checks(command.provider_id))


@activity.defn
def ensure_provider_resource(command: ProviderResource) -> CloudResourceReport:
    """Find one of a provider's cloud resources, or else create it."""
    with translated_errors():
        return CloudResourceReport(resource=_project(command).make(command.resource))


@activity.defn
def remove_provider_resource(command: ProviderResource) -> CloudResourceReport:
    """Remove one of a provider's cloud resources; silent when it does not exist."""
    with translated_errors():
        return CloudResourceReport(resource=_project(command).remove(command.resource))


@activity.defn
def forget_provider_key(command: ForgetProviderKey) -> Done:
    """Delete the stored key of a provider; a key outside the database is not deleted."""
    forget_credentials(command.provider_id)
    return Done()


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
def ensure_region_resource(command: RegionResource) -> CloudResourceReport:
    """Find one of a region's cloud resources, or else create it."""
    with translated_errors():
        return CloudResourceReport(resource=_region(command).make(command.resource))


@activity.defn
def remove_region_resource(command: RegionResource) -> CloudResourceReport:
    """Remove one of a region's cloud resources; silent when it does not exist."""
    with translated_errors():
        return CloudResourceReport(resource=_region(command).remove(command.resource))


def _project(command: ProviderResource) -> CloudProject:
    kind = kind_of(command.kind)
    return kind.required("project", kind.project)(command.provider_id)


def _region(command: RegionResource) -> CloudRegionDriver:
    kind = kind_of(command.kind)
    return kind.required("region", kind.region)(command.provider_id, command.cloud_region)
