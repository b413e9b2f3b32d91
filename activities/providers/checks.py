"""The activities of providers that call nobody: checks of those that are no cloud, and the key."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.providers.registry import checks_of, unavailable
from activities.secrets.credentials import forget_credentials
from workflows.contracts.base import Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.providers import Check
from workflows.effects.providers import CheckProvider, ForgetProviderKey, ProviderChecked
from workflows.rules.catalogue.providers import TRAITS, traits_of


@activity.defn
def check_provider(command: CheckProvider) -> ProviderChecked:
    """Run every check of a provider that is no cloud.

    Raises: Refused, for a cloud, whose checks run on its own queue.
    """
    if command.provider_kind not in TRAITS:
        detail = unavailable(command.provider_kind)
        return ProviderChecked(checks=(Check(name="kind", status="failed", detail=detail),))
    if traits_of(command.provider_kind).is_cloud:
        message = f"{command.provider_id}: asked its checks, {command.provider_kind} is a cloud"
        raise ApplicationError(message, type=REFUSED)
    return ProviderChecked(checks=checks_of(command.provider_kind, command.provider_id))


@activity.defn
def forget_provider_key(command: ForgetProviderKey) -> Done:
    """Delete the stored key of a provider; a key outside the database is not deleted."""
    forget_credentials(command.provider_id)
    return Done()
