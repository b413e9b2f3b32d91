"""What a region has of its own in its cloud: found or made, removed and seen to be gone."""

from collections.abc import Callable
from typing import Protocol

from temporalio import activity

from activities.providers.base import RequestRefused
from activities.providers.gcp.regions import GcpRegion
from activities.providers.projects import told
from workflows.contracts.providers import CloudPart
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import ProviderPartSeen
from workflows.effects.regions import RegionPart


class CloudPlace(Protocol):
    """One region of a cloud, by the key of a provider."""

    def make(self, part: str) -> CloudPart: ...

    def remove(self, part: str) -> CloudPart: ...


PLACES: dict[ProviderKind, Callable[[str, str], CloudPlace]] = {ProviderKind.GCP: GcpRegion}
"""What makes a place, by its provider's id and what the cloud calls it."""


@activity.defn
def make_region_part(command: RegionPart) -> ProviderPartSeen:
    """Find one of a region's own things in its cloud, else make it."""
    with told():
        return ProviderPartSeen(part=_place(command).make(command.part))


@activity.defn
def remove_region_part(command: RegionPart) -> ProviderPartSeen:
    """Remove one of a region's own things from its cloud; silent when it is not there."""
    with told():
        return ProviderPartSeen(part=_place(command).remove(command.part))


def _place(command: RegionPart) -> CloudPlace:
    if command.kind not in PLACES:
        raise RequestRefused(f"region {command.region_id}: {command.kind} has no regions")
    return PLACES[command.kind](command.provider_id, command.cloud_region)
