"""Which kinds of provider there are. A new one is a module here and a line below."""

from collections.abc import Callable

from temporalio import activity

from activities.providers.base import Driver, NotificationFeed, Provider, RequestRefused
from activities.providers.cloud_parts import PROJECTS, translated_errors
from activities.providers.gcp.driver import google_machines
from activities.providers.gcp.notifications import google_news
from activities.providers.physical import PhysicalProvider
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import CheckProvider, ProviderChecked

PROVIDERS: dict[ProviderKind, Provider] = {ProviderKind.PHYSICAL: PhysicalProvider()}
DRIVERS: dict[ProviderKind, Callable[[str], Driver]] = {ProviderKind.GCP: google_machines}
"""What makes the driver of the machines of one provider, by its id."""
FEEDS: dict[ProviderKind, Callable[[str], Callable[[], NotificationFeed]]] = {
    ProviderKind.GCP: google_news
}
"""What prepares a provider's news, by its id; the feed itself is made on the loop that uses it."""


def driver_of(kind: ProviderKind, provider_id: str) -> Driver:
    """Raises: RequestRefused, for a kind whose machines nobody makes."""
    if kind not in DRIVERS:
        raise RequestRefused(f"provider {provider_id}: machines of {kind} cannot be made here")
    return DRIVERS[kind](provider_id)


@activity.defn
def check_provider(command: CheckProvider) -> ProviderChecked:
    """Look at everything that a provider needs to be used."""
    if command.kind in PROJECTS:
        with translated_errors():
            return ProviderChecked(checks=PROJECTS[command.kind](command.provider_id).check())
    provider = PROVIDERS.get(command.kind)
    if provider is None:
        known = ", ".join(sorted((*PROVIDERS, *PROJECTS)))
        missing = Check(
            name="kind",
            status="failed",
            detail=f"{command.kind}: not available here; these are: {known}",
        )
        return ProviderChecked(checks=(missing,))
    return ProviderChecked(checks=provider.check())
