"""Which kinds of provider there are. A new one is a module here and a line below."""

from temporalio import activity

from activities.providers.base import Provider
from activities.providers.physical import PhysicalProvider
from workflows.contracts.provider import Check
from workflows.contracts.states import ProviderKind
from workflows.effects.region import CheckProvider, ProviderChecked

PROVIDERS: dict[ProviderKind, Provider] = {ProviderKind.PHYSICAL: PhysicalProvider()}


@activity.defn
def check_provider(command: CheckProvider) -> ProviderChecked:
    """Look at everything that a provider needs to be used."""
    provider = PROVIDERS.get(command.kind)
    if provider is None:
        known = ", ".join(sorted(PROVIDERS))
        missing = Check(
            name="kind",
            status="failed",
            detail=f"{command.kind}: not available here; these are: {known}",
        )
        return ProviderChecked(checks=(missing,))
    return ProviderChecked(checks=provider.check())
