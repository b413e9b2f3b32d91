"""Dependents, and storage nodes of cloud regions.

As activities/lifecycles/dependents.py and activities/regions/storage_nodes.py.
"""

from typing import Any, cast

from temporalio.exceptions import ApplicationError

from activities.nodes.addresses import address_of
from activities.providers.prices import catalogue_of
from activities.providers.registry import kind_of
from activities.regions.cache import cache_address_of, serves
from tests.simulation.contracts import Attempt, Handler
from tests.simulation.rows_model.bursts import leased_node
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Node
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Done
from workflows.contracts.errors import REFUSED
from workflows.contracts.lifecycles import (
    ARTIFACT_NOUNS,
    DATASTORE,
    LEASE,
    NODE,
    PROVIDER,
    REGION,
    noun_of,
    workflow_id_of,
)
from workflows.contracts.machines import MachineClaim
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, NodeType, ProviderKind, RegionStatus
from workflows.effects.lifecycles import DependentsFound, FindDependents, RemoveDependents
from workflows.effects.regions import (
    AddStorageNode,
    FindStorage,
    FindStorageClaim,
    FindStorageFill,
    RequestNodeRemoval,
    StorageFill,
    StorageFound,
    StorageNode,
)
from workflows.rules.catalogue.permanent_machines import lasting_spec, storage_offers


class Regions:
    def __init__(self, tables: Tables, connection: Connection, outbox: Outbox) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox

    def effects(self) -> dict[str, Handler]:
        return {
            "find_dependents": lambda _, command: self.find_dependents(command),
            "remove_dependents": self._remove_dependents,
            "find_storage": self._find_storage,
            "find_storage_claim": self._find_storage_claim,
            "find_storage_fill": self._find_storage_fill,
            "add_storage_node": self._add_storage_node,
            "request_node_removal": self._request_node_removal,
        }

    # ── dependents ──────────────────────────────────────────────────────────────────────────

    def find_dependents(self, command: FindDependents) -> DependentsFound:
        """As dependents.py:find_dependents; leases come after all others."""
        resource_id = command.resource_id
        found = [*self.users_of(resource_id), *self._leases_of(resource_id)]
        own = self.own_dependents_of(resource_id)
        row = self._tables.row(resource_id)
        return DependentsFound(
            ids=tuple(found),
            own_ids=tuple(one for one in found if one in own),
            sequence=0 if row is None else row.sequence,
        )

    def users_of(self, resource_id: str) -> list[str]:
        """As dependents.py:_users_of."""
        noun, tables = noun_of(resource_id), self._tables
        if noun is PROVIDER:
            return sorted(row.id for row in tables.live_regions(resource_id))
        if noun is REGION:
            nodes = [row.id for row in tables.live_nodes(resource_id)]
            return [*nodes, *tables.live_datastores(resource_id)]
        if noun is DATASTORE or noun in ARTIFACT_NOUNS:  # No job of a life names one.
            return []
        live = tables.live_on.get(resource_id, {}).values()
        return sorted({each.job_id for each in live if each.is_of_job})

    def _leases_of(self, resource_id: str) -> list[str]:
        noun, tables = noun_of(resource_id), self._tables
        if noun is PROVIDER:
            return tables.open_leases(tables.leases_of.get(resource_id))
        if noun is not REGION:
            return []
        rows = tables.open["lease"].values()
        return sorted(row.id for row in rows if row.region_id == resource_id)

    def own_dependents_of(self, resource_id: str) -> set[str]:
        """Those that do not prevent a removal by a person: dependents.py:own_dependents_of."""
        if noun_of(resource_id) is not REGION:
            return set()
        nodes = {node.id for node in self._storage_nodes(resource_id)}
        nodes |= {node.id for node in self._tables.live_nodes(resource_id) if self._leaves(node)}
        held = [lease_id for each in nodes for lease_id in self._tables.leases_held.get(each, ())]
        return nodes | set(held)

    def _leaves(self, node: Node) -> bool:
        """Whether it has no jobs, gets no new ones and is not retained: _leaving_from."""
        leaves = node.status == NodeStatus.REMOVING or node.type == NodeType.EPHEMERAL
        stays = node.machine is not None and node.machine.stays
        live = self._tables.live_on.get(node.id, {}).values()
        return leaves and not stays and not any(each.is_of_job for each in live)

    def _remove_dependents(self, attempt: Attempt, command: RemoveDependents) -> Done:
        """As dependents.py:remove_dependents."""
        found = self.find_dependents(FindDependents(resource_id=command.resource_id))
        if 0 < command.sequence < found.sequence:
            return Done()
        removal = command.removal.model_copy(update={"reschedules": True})
        users = [one for one in found.ids if noun_of(one) is not LEASE]
        for resource_id in users or found.ids:
            try:
                self._connection.tell(workflow_id_of(resource_id), "remove", removal)
            except ApplicationError as cause:
                self._connection.temporal.note("rows", f"{resource_id}: not asked: {cause}")
        return Done()

    # ── storage nodes ───────────────────────────────────────────────────────────────────────

    def _storage_nodes(self, region_id: str) -> list[Node]:
        """As storage_nodes.py:storage_nodes_of, oldest first."""
        nodes = self._tables.live_nodes(region_id)
        return [row for row in nodes if row.machine is not None and "storage" in row.services]

    def _find_storage(self, attempt: Attempt, command: FindStorage) -> StorageFound:
        nodes = self._storage_nodes(command.region_id)
        return StorageFound(nodes=tuple(_storage(row) for row in nodes))

    def _find_storage_claim(self, attempt: Attempt, command: FindStorageClaim) -> MachineClaim:
        """As storage_nodes.py:find_storage_claim. Raises: Refused."""
        region = self._tables.regions[command.region_id]
        classes = kind_of(region.provider_kind).storage_classes
        cloud_region, wanted = region.cloud_region or "", region.storage_node_class or ""
        found = None if classes is None else classes().named(wanted)
        if found is None:
            message = f"region {region.name}: there is no storage class {wanted!r}"
            raise ApplicationError(message, type=REFUSED)
        offers = storage_offers(catalogue_of(region.provider_kind), found, cloud_region)
        if not offers:
            message = f"region {region.name}: no price of storage class {wanted}"
            raise ApplicationError(message, type=REFUSED)
        tags = {"region": region.id, "service": "storage"}
        return MachineClaim(
            provider_id=region.provider_id,
            provider_kind=ProviderKind(region.provider_kind),
            offers=offers,
            spec=lasting_spec(region.provider_kind, found.disk_size_gb, tags),
        )

    def _add_storage_node(self, attempt: Attempt, command: AddStorageNode) -> StorageNode:
        """As storage_nodes.py:add_storage_node. Raises: Refused."""
        region = self._tables.regions[command.region_id]
        staying = [
            row
            for row in self._storage_nodes(region.id)
            if row.id not in command.replaces and row.status != NodeStatus.REMOVING
        ]
        if staying:
            return _storage(staying[-1])
        if region.status in (RegionStatus.REMOVING, RegionStatus.ARCHIVED):
            raise ApplicationError(f"region {region.name}: is being removed", type=REFUSED)
        node = leased_node(
            region,
            command.node_id,
            f"{region.name}-storage",
            command.machine,
            command.at,
            type_=NodeType.PERMANENT,
            services=("storage",),
        )
        older = [row for row in self._storage_nodes(region.id) if row not in staying]
        in_use = [row for row in older if row.status == NodeStatus.ACTIVE] or older
        node.fills_from = in_use[-1].id if in_use else None
        with self._tables.write():
            request_id = self._outbox.create(node)
        self._connection.between()
        self._outbox.relay_soon([request_id])
        return _storage(node)

    def _find_storage_fill(self, attempt: Attempt, command: FindStorageFill) -> StorageFill:
        """As storage_nodes.py:find_storage_fill."""
        rows = self._tables.live_nodes(command.region_id)
        nodes = {
            row.id: row
            for row in sorted(rows, key=lambda row: row.id)
            if "storage" in row.services and row.status != NodeStatus.REMOVING
        }
        new = next((row for row in reversed(nodes.values()) if row.fills_from in nodes), None)
        if new is None:
            return StorageFill()
        older, region = nodes[new.fills_from or ""], self._tables.regions[command.region_id]
        answers = older.status in (NodeStatus.ACTIVE, NodeStatus.MAINTENANCE)
        is_source = answers and serves(cast("Any", older))
        return StorageFill(
            node_id=new.id,
            name=new.name,
            status=NodeStatus(new.status),
            older=tuple(each for each in nodes if each != new.id),
            node=address_of(cast("Any", new), cast("Any", region))
            if serves(cast("Any", new))
            else None,
            source=cache_address_of(cast("Any", older)) if is_source else None,
        )

    def _request_node_removal(self, attempt: Attempt, command: RequestNodeRemoval) -> Done:
        """As storage_nodes.py:request_node_removal."""
        node = self._tables.nodes.get(command.node_id)
        if node is None or node.status in (NodeStatus.REMOVING, *NODE.final_statuses):
            return Done()
        removal = Removal(force=True, requested_by=command.requested_by, reschedules=True)
        with self._tables.write():
            request_id = self._outbox.enqueue(node.id, "remove", removal, command.at)
        self._connection.between()
        self._outbox.relay_soon([request_id])
        return Done()


def _storage(row: Node) -> StorageNode:
    return StorageNode(
        node_id=row.id, name=row.name, status=NodeStatus(row.status), reason=row.status_reason
    )
