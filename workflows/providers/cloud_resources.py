"""The resources of a provider in its cloud: created, removed, and what is left of them."""

from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.lifecycles import ProviderChanges
from workflows.contracts.providers import CloudResource, ProviderRequest
from workflows.effects.providers import (
    ForgetProviderKey,
    ListOwnedMachines,
    ProviderResource,
    ensure_provider_resource,
    forget_provider_key,
    list_owned_machines,
    remove_provider_resource,
)
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.rules.catalogue.providers import traits_of


class CloudResources:
    """The part of a provider's lifecycle that creates and removes what it has in its cloud.

    A provider of own machines has nothing there.
    """

    def __init__(self, request: ProviderRequest) -> None:
        self._request = request
        self.is_cloud = traits_of(request.kind).is_cloud
        self.notifies = self.is_cloud and traits_of(request.kind).notifies
        self._made: list[CloudResource] = []
        """What is known to be there; after a removal what is left, each with the reason."""

    @property
    def are_left(self) -> bool:
        return bool(self._made)

    async def create(self) -> None:
        """Create what is not there yet, one after another. Raises: ActivityError, of the first."""
        self._made.clear()
        for resource in self._resources():
            self._made.append(
                (await ensure_provider_resource(resource, summary=resource.resource)).resource
            )

    async def remove(self) -> list[str]:
        """Remove what we created, the last first, and return what is gone."""
        gone: list[str] = []
        self._made.clear()
        for resource in reversed(self._resources()):
            try:
                seen = await remove_provider_resource(resource, summary=resource.resource)
            except EFFECT_FAILED as failure:
                if is_cancelled_exception(failure):
                    raise
                self._made.append(CloudResource(name=resource.resource, path=cause_of(failure)[1]))
            else:
                gone.append(seen.resource.path)
        return gone

    async def machines_left(self) -> str:
        """The machines with our label that the cloud still lists, in words; empty: none.

        Nothing looks for them once the key is forgotten.
        """
        command = ListOwnedMachines(
            provider_id=self._request.provider_id, provider_kind=self._request.kind
        )
        try:
            names = (await list_owned_machines(command)).names
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure):
                raise
            return f"its machines could not be listed: {cause_of(failure)[1]}"
        return f"its cloud still lists {', '.join(names)}" if names else ""

    async def forget_key(self) -> None:
        """Forget the provider's key, after which nobody reaches its cloud any more."""
        await forget_provider_key(ForgetProviderKey(provider_id=self._request.provider_id))

    def added_to(self, changes: ProviderChanges) -> ProviderChanges:
        """The changes with the resources that are known to be there; None for own machines."""
        resources = tuple(self._made) if self.is_cloud else None
        return changes.model_copy(update={"resources": resources})

    def describe_left(self) -> str:
        return "; ".join(f"{resource.name}: {resource.path}" for resource in self._made)

    def describe_removal(self, gone: list[str], machines: str) -> str:
        """What we created and is gone, what of it is left, and what was there before."""
        costs = f"; {machines}, which may still cost money" if machines else ""
        left = f"; left, by force: {self.describe_left()}" if self._made else ""
        if not self._resources():
            return f"removed, its key is forgotten{costs}"
        others = "the service account, its roles and the APIs that are on are as they were"
        return f"removed {', '.join(gone) or 'nothing'}{left}{costs}; {others}"

    def _resources(self) -> tuple[ProviderResource, ...]:
        return tuple(
            ProviderResource(
                provider_id=self._request.provider_id,
                provider_kind=self._request.kind,
                resource=name,
            )
            for name in traits_of(self._request.kind).resources
        )
