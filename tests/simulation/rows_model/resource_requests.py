"""What people ask of providers, regions, nodes and leases. As api/services/*.py."""

from typing import TypeVar

from activities.providers.prices import catalogue_of
from api.services.announcements import CONNECTED
from api.services.lifecycles import GONE
from api.services.regions import DEFAULT_STORAGE_CLASS
from tests.simulation.contracts import Refused
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.job_requests import PERSON
from tests.simulation.rows_model.nodes import Nodes
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import (
    Announced,
    Datastore,
    Lease,
    LifecycleRow,
    Node,
    Provider,
    Region,
)
from tests.simulation.rows_model.regions import Regions
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.lifecycles import LEASE, NODE, Refresh
from workflows.contracts.nodes import NodeAction
from workflows.contracts.regions import Replacement
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, ProviderStatus, RegionStatus
from workflows.rules.catalogue.providers import TRAITS, traits_of
from workflows.rules.nodes import requirements

_Row = TypeVar("_Row", bound=LifecycleRow)
_TAKES_NODES = (RegionStatus.HEALTHY, RegionStatus.OFFLINE)


class ResourceRequests:
    """Called in the transaction of a request; each returns the ids of its outbox rows."""

    def __init__(
        self,
        tables: Tables,
        connection: Connection,
        outbox: Outbox,
        nodes: Nodes,
        regions: Regions,
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._nodes = nodes
        self._regions = regions

    # ── new resources ───────────────────────────────────────────────────────────────────────

    def add_provider(self, account_id: str, kind: str) -> tuple[str, list[str]]:
        """As providers.py:enable_provider; each provider of a cloud has a project of its own."""
        if account_id not in self._tables.accounts or kind not in TRAITS:
            raise Refused(f"{account_id}, {kind}: there is no such account or kind")
        now = self._connection.now()
        row = Provider(
            id=self._tables.new_id("prv"),
            account_id=account_id,
            name=kind,
            kind=kind,
            has_key=traits_of(kind).is_cloud,
            created_at=now,
            updated_at=now,
        )
        return row.id, [self._outbox.create(row)]

    def add_region(
        self, provider_id: str, zone: str, *, storage: bool, own_worker: bool = False
    ) -> tuple[str, list[str]]:
        """As regions.py:create_region.

        zone: a cloud's region, or one of its zones. storage: whether a region of own machines has
        central storage; one in a cloud always has, and creates its storage node itself.
        """
        provider = self._row(self._tables.providers, provider_id)
        if provider.status != ProviderStatus.READY:
            raise Refused(f"provider {provider.id}: is {provider.status}; asked: ready")
        now, region_id = self._connection.now(), self._tables.new_id("reg")
        row = Region(
            id=region_id,
            account_id=provider.account_id,
            name=f"region-{region_id.rpartition('-')[2].lstrip('0')}",
            provider_id=provider.id,
            provider_kind=provider.kind,
            storage_mode="central" if storage else "local",
            own_worker=own_worker,
            relaxed_requirements=(requirements.ALL,),  # The machines of the simulator are small.
            created_at=now,
            updated_at=now,
        )
        if traits_of(provider.kind).is_cloud:
            row.storage_mode = "central"
            row.cloud_region = self._cloud_region(provider, zone)
            row.storage_node_class = DEFAULT_STORAGE_CLASS
        return row.id, [self._outbox.create(row)]

    def _cloud_region(self, provider: Provider, zone: str) -> str:
        """As regions.py:_storage_columns and _check_cloud_region."""
        catalogue = catalogue_of(provider.kind)
        names = (zone, zone.rpartition("-")[0])
        found = next((name for name in names if name and catalogue.region(name)), None)
        if found is None:
            raise Refused(f"{zone}: is no region of {provider.kind}")
        for other in self._tables.live_regions(provider.id):
            if other.cloud_region == found:
                raise Refused(f"{found}: {other.name} ({other.id}) is there, {other.status}")
        return found

    def add_node(self, region_id: str, minion_id: str) -> tuple[str, list[str]]:
        """As nodes.py:add_node, of a machine of one's own."""
        region = self._row(self._tables.regions, region_id)
        if region.status not in _TAKES_NODES:
            raise Refused(f"region {region.name}: is {region.status}; must be healthy")
        if traits_of(region.provider_kind).is_cloud:
            raise Refused(f"region {region.name}: in a cloud the platform creates the machine")
        taken = self._node_of(minion_id, region.account_id)
        if taken is not None:
            raise Refused(f"minion id {minion_id}: is that of node {taken.name} ({taken.id})")
        services = ("compute",)
        if region.storage_mode == "central" and not self._tables.live_nodes(region.id):
            services = ("storage",)
        known = self._nodes.announced(region.id, minion_id)
        now, node_id = self._connection.now(), self._tables.new_id("nod")
        row = Node(
            id=node_id,
            account_id=region.account_id,
            name=f"node-{node_id.rpartition('-')[2].lstrip('0')}",
            region_id=region.id,
            minion_id=minion_id,
            services=services,
            host=None if known is None else known.host,
            created_at=now,
            updated_at=now,
        )
        return row.id, [self._outbox.create(row)]

    def add_datastore(self, region_id: str) -> tuple[str, list[str]]:
        """As datastores.py:create_datastore, of an SMB share."""
        region = self._row(self._tables.regions, region_id)
        if region.status in GONE:
            raise Refused(f"region {region.name}: is {region.status}")
        nodes = self._tables.live_nodes(region.id)
        if not any(node.status == NodeStatus.ACTIVE for node in nodes):
            raise Refused(f"region {region.name}: has no active node or device")
        now, datastore_id = self._connection.now(), self._tables.new_id("dst")
        row = Datastore(
            id=datastore_id,
            account_id=region.account_id,
            name=f"share-{datastore_id.rpartition('-')[2].lstrip('0')}",
            region_id=region.id,
            has_password=True,
            created_at=now,
            updated_at=now,
        )
        return row.id, [self._outbox.create(row)]

    def announce(self, minion_id: str, host: str) -> list[str]:
        """As announcements.py:announce; a connected node reads no announcement."""
        tables, now = self._tables, self._connection.now()
        said = Announced(minion_id=minion_id, host=host, at=now)
        tables.put(tables.announced, minion_id, said)
        return [
            self._outbox.wake(node.id, now, slowly=True)
            for node in tables.nodes_by_minion.get(minion_id, {}).values()
            if node.status not in (*GONE, *CONNECTED)
        ]

    def _node_of(self, minion_id: str, account_id: str) -> Node | None:
        """As announcements.py:node_of."""
        nodes = self._tables.nodes_by_minion.get(minion_id, {}).values()
        of_account = (node for node in nodes if node.account_id == account_id)
        return next((node for node in of_account if node.status != NodeStatus.ARCHIVED), None)

    # ── removals ────────────────────────────────────────────────────────────────────────────

    def remove(self, row: LifecycleRow, *, force: bool, reschedules: bool = False) -> list[str]:
        """As services/lifecycles.py:remove, and what each noun adds to it."""
        if isinstance(row, Lease):
            raise Refused(f"lease {row.name}: a lease is killed")
        if row.status in GONE:
            return []
        if isinstance(row, Node) and row.machine is not None and "storage" in row.services:
            raise Refused(f"node {row.name}: is its region's storage: replace it")
        if not force:
            _must_be_free(row, self._dependents_of(row))
        removal = Removal(force=force, requested_by=PERSON, reschedules=reschedules)
        return self._tell(row.id, "remove", removal)

    def _dependents_of(self, row: LifecycleRow) -> list[str]:
        """What forbids a removal that is not forced."""
        found = self._regions.users_of(row.id)
        if isinstance(row, Region):
            own = self._regions.own_dependents_of(row.id)
            return [each for each in found if each not in own]
        if isinstance(row, Node) and row.machine is None and not found:
            live = self._tables.live_on.get(row.id, {}).values()
            return [each.id for each in live if each.is_leaving]
        return found

    # ── nodes, providers, leases ────────────────────────────────────────────────────────────

    def act(self, row: Node, action: NodeAction, *, force: bool) -> list[str]:
        """As nodes.py:act."""
        if row.status not in action.allowed + (action.allowed_leased if row.machine else ()):
            allowed = " or ".join(action.allowed)
            raise Refused(f"node {row.name}: is {row.status}; must be {allowed} to {action.verb}")
        if action.takes_force and not force:
            _must_be_free(row, self._regions.users_of(row.id))
        if action.status is not None:
            revision = row.wanted_revision + 1
            self._tables.set(row, wanted_status=action.status, wanted_revision=revision)
            return [self._outbox.wake(row.id, self._connection.now())]
        given = {"force": force} if action.takes_force else {}
        message = None if action.message is None else action.message.model_validate(given)
        return self._tell(row.id, action.name, message)

    def replace(self, row: Node) -> list[str]:
        """As nodes.py:replace_node."""
        if row.machine is None or "storage" not in row.services:
            raise Refused(f"node {row.name}: remove it, then add another")
        region = self._tables.regions[row.region_id]
        if row.status in GONE or region.status not in _TAKES_NODES:
            raise Refused(f"region {region.name}: is {region.status}; must be healthy or offline")
        return self._tell(region.id, "replace", Replacement(requested_by=PERSON))

    def recheck(self, row: Provider) -> list[str]:
        """As providers.py:recheck_provider."""
        if row.status not in (ProviderStatus.READY, ProviderStatus.FAILED):
            raise Refused(f"provider {row.name}: is {row.status}; must be ready or failed")
        return self._tell(row.id, "recheck", None)

    def refresh(self, row: LifecycleRow) -> list[str]:
        """The platform's own message, which no route of the API sends."""
        if row.status in (*GONE, *row.noun.final_statuses):
            raise Refused(f"{row.noun.name} {row.name}: is {row.status}")
        return self._tell(row.id, "refresh", Refresh() if row.noun is NODE else None)

    def kill(self, row: Lease) -> list[str]:
        """As leases.py:kill."""
        if row.status in LEASE.final_statuses:
            return []
        asked = LeaseRelease(reason=f"killed by {PERSON}", by_person=True)
        return self._tell(row.id, "release", asked)

    def _tell(self, resource_id: str, verb: str, argument: Contract | None) -> list[str]:
        return [self._outbox.enqueue(resource_id, verb, argument, self._connection.now())]

    def _row(self, table: dict[str, _Row], resource_id: str) -> _Row:
        row = table.get(resource_id)
        if row is None:
            raise Refused(f"{resource_id}: there is no such resource")
        return row


def _must_be_free(row: LifecycleRow, dependents: list[str]) -> None:
    if dependents:
        named = ", ".join(dependents[:5])
        raise Refused(f"{row.noun.name} {row.name}: has {named}; force ends them")
