"""Effects of providers and regions."""

from datetime import datetime

from workflows.contracts.base import Contract, Done
from workflows.contracts.machine import MachineWish
from workflows.contracts.provider import Check, CloudPart, Removal
from workflows.contracts.states import NodeStatus, ProviderKind
from workflows.effects.effect import Effect


class CheckProvider(Contract):
    provider_id: str
    kind: ProviderKind


class ProviderChecked(Contract):
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.status != "failed" for check in self.checks)


class ProviderPart(Contract):
    """One of `PARTS` of a provider."""

    provider_id: str
    kind: ProviderKind
    part: str


class ProviderPartSeen(Contract):
    part: CloudPart


class ForgetProviderKey(Contract):
    """Remove the key that was given for a provider from the store; silent when there is none."""

    provider_id: str


class CheckSite(Contract):
    """Prove that a worker serves the region's queue and holds the platform's key."""

    region_id: str


class SiteChecked(Contract):
    platform_key_fingerprint: str


class FindDependents(Contract):
    """What still uses a provider (its regions), a region (its nodes) or a node (its jobs)."""

    resource_id: str


class DependentsFound(Contract):
    ids: tuple[str, ...] = ()
    own_ids: tuple[str, ...] = ()
    """Those of them that keep nobody from removing the resource: a region's storage, which it has
    made for itself, and nodes that leave already, or were made for a job that has ended."""


class TellDependents(Contract):
    """Send `remove` to everything that still uses the resource."""

    resource_id: str
    removal: Removal


class RegionPart(Contract):
    """One of `REGION_PARTS` of a region in a cloud."""

    region_id: str
    provider_id: str
    kind: ProviderKind
    cloud_region: str
    part: str


class AddStorageNode(Contract):
    """The region's storage node that is there, beside those it is to replace; else a new one."""

    region_id: str
    node_id: str
    machine: MachineWish
    replaces: tuple[str, ...] = ()
    at: datetime


class FindStorage(Contract):
    region_id: str


class StorageNode(Contract):
    node_id: str
    name: str
    status: NodeStatus
    reason: str | None = None


class StorageFound(Contract):
    """The storage nodes of a region that are not archived, oldest first."""

    nodes: tuple[StorageNode, ...] = ()


class DismissNode(Contract):
    """Ask a node to be removed, whatever it holds."""

    node_id: str
    requested_by: str
    at: datetime


check_provider = Effect("check_provider", CheckProvider, ProviderChecked, start_to_close_s=60)
try_provider = Effect(
    "check_provider",
    CheckProvider,
    ProviderChecked,
    start_to_close_s=120,
    schedule_to_close_s=300,
    retry_most_s=60,
)
"""For what is reached over the network, which may be away for longer than anybody waits."""

make_provider_part = Effect(
    "make_provider_part",
    ProviderPart,
    ProviderPartSeen,
    start_to_close_s=150,
    schedule_to_close_s=900,
    is_waited_for=True,
)
"""Find it, else make it."""

remove_provider_part = Effect(
    "remove_provider_part",
    ProviderPart,
    ProviderPartSeen,
    start_to_close_s=150,
    schedule_to_close_s=900,
)
"""Remove it where it is there and ours."""

forget_provider_key = Effect("forget_provider_key", ForgetProviderKey, Done)
check_site = Effect(
    "check_site",
    CheckSite,
    SiteChecked,
    queue=None,
    start_to_close_s=10,
    schedule_to_close_s=120,
)
make_region_part = Effect(
    "make_region_part",
    RegionPart,
    ProviderPartSeen,
    start_to_close_s=150,
    schedule_to_close_s=900,
    is_waited_for=True,
)
remove_region_part = Effect(
    "remove_region_part",
    RegionPart,
    ProviderPartSeen,
    start_to_close_s=150,
    schedule_to_close_s=900,
)
add_storage_node = Effect("add_storage_node", AddStorageNode, StorageNode)
find_storage = Effect("find_storage", FindStorage, StorageFound)
dismiss_node = Effect("dismiss_node", DismissNode, Done)
find_dependents = Effect("find_dependents", FindDependents, DependentsFound)
tell_dependents = Effect("tell_dependents", TellDependents, Done)
