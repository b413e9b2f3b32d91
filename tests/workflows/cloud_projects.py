"""A provider's project in the tests' world: what was made in it, as a whole and for its regions."""

from collections import defaultdict
from dataclasses import dataclass, field

from tests.workflows.fake_cloud import PRICE_MICROCREDITS
from workflows.contracts.base import Done
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.providers import CloudResource
from workflows.contracts.regions import CacheAddress
from workflows.contracts.statuses import NodeStatus, ProviderKind
from workflows.effects import providers, regions

STORAGE_CLAIM = MachineClaim(
    provider_id="prv-1",
    provider_kind=ProviderKind.GCP,
    offers=(
        MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=PRICE_MICROCREDITS),
    ),
    spec=MachineSpec(lifetime_s=3600),
)


@dataclass
class CloudProjects:
    """The effects of providers' and regions' parts, of keys, and of regions' storage."""

    resources: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """What is there, by provider."""
    forgotten_keys: set[str] = field(default_factory=set)
    storage: dict[str, list[regions.StorageNode]] = field(default_factory=lambda: defaultdict(list))
    """Storage nodes that are not archived, by region."""
    storage_claim: MachineClaim = STORAGE_CLAIM
    """What storage nodes are made as now."""
    storage_claims: list[MachineClaim] = field(default_factory=list)
    """With which claims storage nodes were added, oldest first."""
    storage_added: int = 0
    storage_comes_as: NodeStatus = NodeStatus.ACTIVE
    fills_from: dict[str, str] = field(default_factory=dict)
    """Whose place a storage node takes."""
    cached: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """What the cache of a storage node holds, which a fill copies file by file."""
    fill_reasons: list[str] = field(default_factory=list)
    """Why the next fills fail, one each."""

    def ensure_provider_resource(
        self, asked: providers.ProviderResource
    ) -> providers.CloudResourceReport:
        self.resources[asked.provider_id].add(asked.resource)
        return _seen(asked)

    def remove_provider_resource(
        self, asked: providers.ProviderResource
    ) -> providers.CloudResourceReport:
        self.resources[asked.provider_id].discard(asked.resource)
        return _seen(asked)

    def ensure_region_resource(
        self, asked: regions.RegionResource
    ) -> providers.CloudResourceReport:
        self.resources[asked.region_id].add(asked.resource)
        return _seen(asked)

    def remove_region_resource(
        self, asked: regions.RegionResource
    ) -> providers.CloudResourceReport:
        self.resources[asked.region_id].discard(asked.resource)
        return _seen(asked)

    def find_storage_claim(self, _: regions.FindStorageClaim) -> MachineClaim:
        return self.storage_claim

    def add_storage_node(self, asked: regions.AddStorageNode) -> regions.StorageNode:
        there = [one for one in self.storage[asked.region_id] if one.node_id not in asked.replaces]
        if there:
            return there[-1]
        self.storage_added += 1
        self.storage_claims.append(asked.machine)
        added = regions.StorageNode(
            node_id=f"nod-store-{self.storage_added}", name="store", status=self.storage_comes_as
        )
        older = [one.node_id for one in self.storage[asked.region_id]]
        if older:
            self.fills_from[added.node_id] = older[-1]
        self.storage[asked.region_id].append(added)
        return added

    def find_storage_fill(self, asked: regions.FindStorageFill) -> regions.StorageFill:
        there = {one.node_id: one for one in self.storage[asked.region_id]}
        new = next(
            (one for one in there.values() if self.fills_from.get(one.node_id) in there), None
        )
        if new is None:
            return regions.StorageFill()
        older = there[self.fills_from[new.node_id]]
        source = CacheAddress(node_id=older.node_id, address="10.0.0.1:8710", is_secure=True)
        return regions.StorageFill(
            node_id=new.node_id,
            name=new.name,
            status=new.status,
            older=tuple(each for each in there if each != new.node_id),
            node=_address(new.node_id, asked.region_id),
            source=source if older.status is NodeStatus.ACTIVE else None,
        )

    def fill_cache(self, asked: regions.FillCache) -> regions.CacheFilled:
        source, new = self.cached[asked.source.node_id], self.cached[asked.node.node_id]
        if self.fill_reasons:
            return regions.CacheFilled(left_files=1, reason=self.fill_reasons.pop(0))
        if left := sorted(source - new):
            new.add(left[0])
        return regions.CacheFilled(files=1, bytes=1, left_files=max(0, len(left) - 1))

    def find_storage(self, asked: regions.FindStorage) -> regions.StorageFound:
        return regions.StorageFound(nodes=tuple(self.storage[asked.region_id]))

    def request_node_removal(self, asked: regions.RequestNodeRemoval) -> Done:
        for region_id, nodes in self.storage.items():
            self.storage[region_id] = [one for one in nodes if one.node_id != asked.node_id]
        return Done()

    def turn_storage(self, status: NodeStatus, reason: str = "") -> None:
        """What becomes of all storage nodes."""
        update = {"status": status, "reason": reason}
        for region_id, nodes in self.storage.items():
            self.storage[region_id] = [one.model_copy(update=update) for one in nodes]

    def forget_provider_key(self, asked: providers.ForgetProviderKey) -> Done:
        self.forgotten_keys.add(asked.provider_id)
        return Done()


def _address(node_id: str, region_id: str) -> NodeAddress:
    return NodeAddress(
        node_id=node_id, region_id=region_id, host="10.0.0.2", port=22, minion_id="SHA256:new"
    )


def _seen(
    asked: providers.ProviderResource | regions.RegionResource,
) -> providers.CloudResourceReport:
    resource = CloudResource(name=asked.resource, path=f"{asked.resource} of {asked.provider_id}")
    return providers.CloudResourceReport(resource=resource)
