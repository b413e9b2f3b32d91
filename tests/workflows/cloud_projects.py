"""A provider's project in the tests' world: what was made in it for the provider as a whole."""

from collections import defaultdict
from dataclasses import dataclass, field

from workflows.contracts.base import Done
from workflows.contracts.provider import CloudPart
from workflows.effects import region


@dataclass
class CloudProjects:
    """The effects of providers' parts and keys."""

    parts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """What is there, by provider."""
    forgotten_keys: set[str] = field(default_factory=set)

    def make_provider_part(self, asked: region.ProviderPart) -> region.ProviderPartSeen:
        self.parts[asked.provider_id].add(asked.part)
        return _seen(asked)

    def remove_provider_part(self, asked: region.ProviderPart) -> region.ProviderPartSeen:
        self.parts[asked.provider_id].discard(asked.part)
        return _seen(asked)

    def forget_provider_key(self, asked: region.ForgetProviderKey) -> Done:
        self.forgotten_keys.add(asked.provider_id)
        return Done()


def _seen(asked: region.ProviderPart) -> region.ProviderPartSeen:
    part = CloudPart(name=asked.part, resource=f"{asked.part} of {asked.provider_id}")
    return region.ProviderPartSeen(part=part)
