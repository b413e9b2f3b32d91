"""Regions in a cloud as rows: their storage, what is their own, and who is told to end."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlmodel import select
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.leases.leasing import acquire_lease
from activities.lifecycles.dependents import find_dependents, remove_dependents
from activities.placement.allocations import release_allocations
from activities.regions.storage_nodes import (
    add_storage_node,
    find_storage,
    find_storage_claim,
    find_storage_fill,
    request_node_removal,
)
from activities.temporal.client import set_client
from tests.activities.cloud_rows import add_cloud_region, add_lease
from tests.activities.nodes.test_running_jobs import start_idle
from tests.activities.outbox.test_relay import signals_of
from tests.activities.placement.rows import add_gpu_node, add_waiting_job
from tests.activities.rows import NOW, add_node, add_payer, add_region, allocate
from workflows.contracts import errors
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import Preparation
from workflows.contracts.regions import CacheAddress
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import ProviderKind
from workflows.effects.leases import AcquireLease
from workflows.effects.lifecycles import FindDependents, RemoveDependents
from workflows.effects.regions import (
    AddStorageNode,
    FindStorage,
    FindStorageClaim,
    FindStorageFill,
    RequestNodeRemoval,
    StorageFill,
)
from workflows.rules.catalogue.providers import traits_of

OFFER = MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=1)


class Place:
    """A region in a cloud, with its provider, to which nodes are added."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            self.region = add_region(session, add_payer(session))
        self.claim = MachineClaim(
            provider_id=self.region.provider_id,
            provider_kind=ProviderKind.GCP,
            offers=(OFFER,),
            spec=MachineSpec(lifetime_s=60),
        )

    def add(self, node_id: str, replaces: tuple[str, ...] = ()) -> str:
        command = AddStorageNode(
            region_id=self.region.id, node_id=node_id, machine=self.claim, replaces=replaces, at=NOW
        )
        return add_storage_node(command).node_id

    def there(self) -> dict[str, str]:
        found = find_storage(FindStorage(region_id=self.region.id)).nodes
        return {node.node_id: node.status for node in found}

    def set(self, table: type[Any], row_id: str, **values: Any) -> None:
        with self.database.write() as session:
            session.get_one(table, row_id).sqlmodel_update(values)

    def lease(self, node_id: str) -> None:
        command = AcquireLease(
            lease_id=f"lea-of-{node_id}", node_id=node_id, region_id=self.region.id,
            machine=self.claim, at=NOW,
        )  # fmt: skip
        acquire_lease(command)


@pytest.fixture
def place(migrated: Database) -> Place:
    return Place(migrated)


def test_a_region_has_one_storage_node_and_another_while_it_is_replaced(place: Place) -> None:
    assert place.add("nod-1") == "nod-1"
    assert place.add("nod-2") == "nod-1", "it was added before, and the answer was lost"
    assert place.add("nod-3", replaces=("nod-1",)) == "nod-3"
    assert place.add("nod-4", replaces=("nod-1",)) == "nod-3"
    assert place.there() == {"nod-1": "new", "nod-3": "new"}
    place.set(tables.Node, "nod-1", status="archived")
    assert place.there() == {"nod-3": "new"}


def test_a_region_that_is_removed_gets_no_storage(place: Place) -> None:
    place.set(tables.Region, place.region.id, status="removing")
    with pytest.raises(ApplicationError, match="is being removed"):
        place.add("nod-1")
    assert place.there() == {}


def claimed(migrated: Database, **columns: Any) -> MachineClaim:
    """For a new region in a cloud."""
    with migrated.write() as session:
        region = add_cloud_region(session, add_payer(session))
        region.sqlmodel_update({"storage_node_class": "medium", **columns})
        region_id = region.id
    return find_storage_claim(FindStorageClaim(region_id=region_id))


def test_a_storage_node_is_claimed_of_its_class_in_any_zone_of_its_region(
    migrated: Database,
) -> None:
    claim = claimed(migrated)
    assert claim.provider_kind is ProviderKind.GCP
    assert [offer.zone for offer in claim.offers] == [f"us-central1-{zone}" for zone in "abcf"]
    (offer, *_) = claim.offers
    assert (offer.machine_type, offer.gpu_count) == ("n1-standard-4", 0)
    assert offer.microcredits_per_hour == 4 * 47_500 + 500 * 100_000 // 730
    assert (claim.spec.lifetime_s, claim.spec.disk_size_gb) == (
        traits_of("gcp").lifetime_limit_s,
        500,
    )
    with migrated.read() as session:
        (region,) = session.exec(select(tables.Region)).all()
    assert claim.provider_id == region.provider_id
    assert claim.spec.tags == {"region": region.id, "service": "storage"}


def test_a_storage_node_is_claimed_at_the_price_that_the_cloud_has_told_at_last(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        row = tables.CloudPriceRow(
            provider_kind="gcp", counted="series", name="n1-standard", cloud_region="us-central1",
            on_demand_nanodollars=100_000_000, spot_nanodollars=10_000_000, source="told",
            read_at=datetime(2027, 1, 1, tzinfo=UTC),
        )  # fmt: skip
        session.add(row)
    (offer, *_) = claimed(migrated).offers
    assert offer.microcredits_per_hour == 4 * 100_000 + 500 * 100_000 // 730


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"storage_node_class": "huge"}, "gcp has no storage class 'huge'"),
        ({"storage_node_class": None}, "gcp has no storage class ''"),
        ({"cloud_region": "mars-north1"}, "no price of storage class medium in 'mars-north1'"),
        ({"provider_kind": "physical"}, "provider kind physical: asked storage_classes, has none"),
    ],
)
def test_what_the_catalogue_does_not_have_is_not_claimed(
    migrated: Database, columns: dict[str, Any], found: str
) -> None:
    with pytest.raises(ApplicationError, match=found) as refused:
        claimed(migrated, **columns)
    assert refused.value.type == errors.REFUSED


def test_a_regions_own_storage_and_its_machine_are_told_apart_from_what_others_have_there(
    place: Place,
) -> None:
    place.add("nod-1")
    place.lease("nod-1")
    with place.database.write() as session:
        other = add_node(session, session.get_one(tables.Region, place.region.id))
    found = find_dependents(FindDependents(resource_id=place.region.id))
    assert set(found.ids) == {"nod-1", other.id, "lea-of-nod-1"}
    assert set(found.own_ids) == {"nod-1", "lea-of-nod-1"}


@pytest.mark.parametrize(
    ("changes", "goes_with_it"),
    [
        ({"type": "ephemeral"}, True),
        ({"status": "removing"}, True),
        ({"type": "ephemeral", "machine": {"stays": True}}, False),
        ({"status": "active"}, False),
    ],
)
def test_a_node_that_leaves_keeps_nobody_from_removing_its_region_once_its_job_has_ended(
    place: Place, changes: dict[str, Any], goes_with_it: bool
) -> None:
    question = FindDependents(resource_id=place.region.id)
    with place.database.write() as session:
        region = session.get_one(tables.Region, place.region.id)
        account = session.get_one(tables.Account, region.account_id)
        node = add_gpu_node(session, region)
        node.sqlmodel_update(changes)
        job = add_waiting_job(session, account)
        allocate(session, job, node, gpu=0)
        lease = add_lease(session, region, node.id, status="releasing")
    found = find_dependents(question)
    assert (set(found.ids), found.own_ids) == ({node.id, lease.id}, ())
    with place.database.write() as session:
        release_allocations(session, job.id, NOW)
    found = find_dependents(question)
    assert set(found.ids) == {node.id, lease.id}
    assert set(found.own_ids) == ({node.id, lease.id} if goes_with_it else set())


async def test_leases_are_told_to_end_when_nobody_else_is_left(
    place: Place, temporal_server: Client
) -> None:
    node_id = new_id("nod")
    place.add(node_id)
    place.lease(node_id)  # Before there is a client: its own workflow is not begun.
    set_client(temporal_server)
    node, machine = f"node/{node_id}", f"lease/lea-of-{node_id}"
    await start_idle(temporal_server, node)
    await start_idle(temporal_server, machine)
    command = RemoveDependents(resource_id=place.region.id, removal=Removal(force=True))
    await ActivityEnvironment().run(remove_dependents, command)
    assert await signals_of(temporal_server, node) == ["remove"]
    assert await signals_of(temporal_server, machine) == []
    place.set(tables.Node, node_id, status="archived")
    await ActivityEnvironment().run(remove_dependents, command)
    assert await signals_of(temporal_server, machine) == ["remove"]


def test_a_node_that_leaves_already_is_not_asked_again(place: Place) -> None:
    place.add("nod-1")
    command = RequestNodeRemoval(node_id="nod-1", requested_by="its region", at=NOW)
    for _ in range(2):
        asyncio.run(request_node_removal(command))
        place.set(tables.Node, "nod-1", status="removing")
    with place.database.read() as session:
        asked = session.exec(select(tables.OutboxRow).filter_by(verb="remove")).all()
        removal = {"force": True, "requested_by": "its region", "reschedules": True}
        assert [row.argument for row in asked] == [removal]


async def test_a_removal_that_its_row_has_left_behind_reaches_nobody(
    place: Place, temporal_server: Client
) -> None:
    node_id = new_id("nod")
    place.add(node_id)
    set_client(temporal_server)
    await start_idle(temporal_server, f"node/{node_id}")
    place.set(tables.Region, place.region.id, sequence=9)
    found = find_dependents(FindDependents(resource_id=place.region.id))
    assert found.sequence == 9
    for sequence, signals in ((8, []), (9, ["remove"])):
        command = RemoveDependents(
            resource_id=place.region.id, removal=Removal(force=True), sequence=sequence
        )
        await ActivityEnvironment().run(remove_dependents, command)
        assert await signals_of(temporal_server, f"node/{node_id}") == signals


def test_a_replacement_is_read_from_the_rows_until_the_old_one_goes(migrated: Database) -> None:
    prepared = Preparation(cache="10.0.0.2:8710", cache_is_secure=True).model_dump(mode="json")
    with migrated.write() as session:
        region = add_region(session, add_payer(session))

    def add(name: str, **changes: Any) -> str:
        with migrated.write() as session:
            row = add_node(session, region, name).sqlmodel_update(
                {"services": ["storage"], "preparation": prepared, **changes}
            )
            session.add(row)
            return row.id

    def turn(node_id: str, **changes: Any) -> None:
        with migrated.write() as session:
            session.add(session.get_one(tables.Node, node_id).sqlmodel_update(changes))

    def fill() -> StorageFill:
        return find_storage_fill(FindStorageFill(region_id=region.id))

    old = add("s1")
    assert fill() == StorageFill()
    new = add("s2", fills_from=old, status="connecting", preparation=None)
    assert (fill().node_id, fill().node, fill().older) == (new, None, (old,))
    turn(new, status="active", preparation=prepared)
    found = fill()
    assert found.source == CacheAddress(node_id=old, address="10.0.0.2:8710", is_secure=True)
    assert found.node is not None
    assert found.node.node_id == new
    turn(old, status="maintenance")
    assert fill() == found, "it is removed with all that it holds"
    turn(old, status="offline")
    assert (fill().source, fill().older) == (None, (old,))
    turn(old, status="removing")
    assert fill() == StorageFill()


def test_a_new_storage_node_of_a_cloud_is_filled_from_the_one_in_use(place: Place) -> None:
    place.add("nod-1")
    place.set(tables.Node, "nod-1", status="active")
    assert place.add("nod-2", replaces=("nod-1",)) == "nod-2"
    with place.database.read() as session:
        assert session.get_one(tables.Node, "nod-1").fills_from is None
        assert session.get_one(tables.Node, "nod-2").fills_from == "nod-1"
