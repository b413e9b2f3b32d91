"""Effects of regions: their site, their cloud resources, their storage nodes."""

from datetime import datetime

from workflows.contracts import queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.machines import MachineClaim
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.regions import CacheAddress
from workflows.contracts.statuses import NodeStatus
from workflows.effects.effect import HEARTBEAT_S, CloudCommand, Effect, SiteCommand
from workflows.effects.providers import CloudResourceReport


class CheckSite(Contract):
    """Prove that a worker process serves the site's task queue and has the region's key."""

    region_id: str
    own_worker: bool = False


class SiteChecked(Contract):
    platform_key_fingerprint: str
    """The fingerprint of the region's key."""


class RegionResource(CloudCommand):
    """One of the `region_resources` of a region in a cloud."""

    region_id: str
    provider_id: str
    cloud_region: str
    resource: str


class FindStorageClaim(Contract):
    """Ask for the claim of the region's storage node: its class, at the prices known now."""

    region_id: str


class AddStorageNode(Contract):
    """Find the region's storage node other than the replaced ones, or add a new one."""

    region_id: str
    node_id: str
    machine: MachineClaim
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


class FindStorageFill(Contract):
    """Ask whether a storage node of the region takes the place of another one."""

    region_id: str


class StorageFill(Contract):
    """A replacement of a region's storage node, as far as it is."""

    node_id: str = ""
    """The storage node that takes the place; empty: no replacement is under way."""
    name: str = ""
    status: NodeStatus = NodeStatus.NEW
    older: tuple[str, ...] = ()
    """The storage nodes that go when the new one is filled."""
    node: NodeAddress | None = None
    """The new one, as soon as it has an address."""
    source: CacheAddress | None = None
    """The cache that serves the region meanwhile; None: it is away, so nothing can be had there."""


class FillCache(SiteCommand):
    """Bring what another cache of the region holds to that of this node, for some minutes."""

    source: CacheAddress


class CacheFilled(Contract):
    files: int = 0
    bytes: int = 0
    left_files: int = 0
    """How many files are left, for which there is room."""
    reason: str = ""
    """Why some could not be had; empty: all could."""


class RequestNodeRemoval(Contract):
    """Signal `remove` to a node, by force, whatever jobs it has."""

    node_id: str
    requested_by: str
    at: datetime


check_site = Effect(
    "check_site",
    CheckSite,
    SiteChecked,
    queue=None,
    start_to_close_s=10,
    schedule_to_close_s=120,
)

ensure_region_resource = Effect(
    "ensure_region_resource",
    RegionResource,
    CloudResourceReport,
    queue=queues.CLOUD,
    start_to_close_s=150,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    waits_for_cancellation=True,
)

remove_region_resource = Effect(
    "remove_region_resource",
    RegionResource,
    CloudResourceReport,
    queue=queues.CLOUD,
    start_to_close_s=150,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
)

find_storage_claim = Effect("find_storage_claim", FindStorageClaim, MachineClaim)

add_storage_node = Effect("add_storage_node", AddStorageNode, StorageNode)

find_storage = Effect("find_storage", FindStorage, StorageFound)

find_storage_fill = Effect("find_storage_fill", FindStorageFill, StorageFill)

fill_cache = Effect(
    "fill_cache",
    FillCache,
    CacheFilled,
    queue=None,
    start_to_close_s=900,
    schedule_to_close_s=2800,
    heartbeat_s=HEARTBEAT_S,
    attempts=3,
)

request_node_removal = Effect("request_node_removal", RequestNodeRemoval, Done)
