"""A region in a cloud, from its creation until nothing of it is left, with Google's double: real
workflows, activities and SSH, on machines that are made for it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select
from temporalio.client import Client

from activities.accounts.bootstrap import bootstrap
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.outbox.relay import relay
from activities.outbox.requests import create
from activities.providers.gcp.network import make_network, remove_network
from activities.providers.gcp.session import google_session
from activities.secrets.credentials import own_place, seal_credentials
from tests.activities.providers.gcp.keys import key_file
from tests.activities.providers.gcp.test_burst_on_temporal import (
    at_work,
    contained,
    dialect,
    google,
    leases_of,
)
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.waiting import eventually
from workflows.contracts.removals import Removal

__all__ = ["contained", "dialect", "google"]
HERE = "us-central1"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "workflows.nodes.leased_machine.RELEASE_POLL_MIN", timedelta(milliseconds=500)
    )
    monkeypatch.setattr(
        "workflows.nodes.leased_machine.RETRY_INTERVAL_MIN", timedelta(milliseconds=500)
    )
    monkeypatch.setattr(
        "workflows.regions.region_lifecycle.REMOVAL_INTERVAL", timedelta(milliseconds=500)
    )


@pytest.fixture
def region(google: GcpDouble, migrated: Database) -> tables.Region:
    """As the API writes it, of a provider that is ready and has its network."""
    bootstrap()
    now = datetime.now(UTC)
    with migrated.write() as session:
        account = session.exec(select(tables.Account)).one()
        provider = tables.Provider(
            id=new_id("prv"), account_id=account.id, name="g", status="ready", kind="gcp",
            checks=[], created_at=now, updated_at=now,
        )  # fmt: skip
        zone = own_place("gcp", provider.id)
        provider.credentials = seal_credentials(session, account.id, zone, key_file(google), now)
        session.add(provider)
    make_network(google_session(provider.id), provider.id)
    return tables.Region(
        id=new_id("reg"), account_id=account.id, name="burst", provider_id=provider.id,
        provider_kind="gcp", cloud_region=HERE, relaxed_requirements=[],
        storage_node_class="micro", options={}, created_at=now, updated_at=now,
    )  # fmt: skip


async def begun(client: Client, database: Database, region: tables.Region) -> None:
    with database.write() as session:
        request_id = create(session, region)
    await relay(client, [request_id])


async def reaches(database: Database, region_id: str, status: str) -> tables.Region:
    def read() -> tables.Region:
        with database.read() as session:
            return session.get_one(tables.Region, region_id)

    await eventually(lambda: read().status == status, f"the region is {status}", 120)
    return read()


def vms(google: GcpDouble) -> list[str]:
    with google.cloud.lock:
        return list(google.cloud.machines.vms)


def assert_nothing_is_left(google: GcpDouble, database: Database, provider_id: str) -> None:
    """The network of the provider can go: nothing is in it."""
    assert vms(google) == []
    assert {lease.status for lease in leases_of(database)} <= {"released", "refused"}
    with database.read() as session:
        assert set(session.exec(select(tables.Node.status)).all()) <= {"archived"}
    remove_network(google_session(provider_id), provider_id)


async def test_a_region_is_made_and_mended_and_leaves_nothing(
    google: GcpDouble, migrated: Database, temporal_server: Client, region: tables.Region
) -> None:
    region_id, provider_id = region.id, region.provider_id
    async with at_work(temporal_server, region_id):
        await begun(temporal_server, migrated, region)
        await reaches(migrated, region_id, "healthy")
        (first,) = vms(google)

        with google.cloud.lock:
            google.cloud.machines.delete_by_hand(first)
        await eventually(lambda: first not in vms(google), "a person has deleted it")
        (lease,) = leases_of(migrated)
        await temporal_server.get_workflow_handle(f"lease/{lease.id}").signal("refresh")
        lost = await reaches(migrated, region_id, "offline")
        assert "storage node burst-storage" in str(lost.status_reason)
        await reaches(migrated, region_id, "healthy")
        assert len(vms(google)) == 1

        handle = temporal_server.get_workflow_handle(f"region/{region_id}")
        await handle.signal("remove", Removal())
        await asyncio.wait_for(handle.result(), 120)
    assert google.cloud.machines.made == 2
    assert_nothing_is_left(google, migrated, provider_id)


async def test_a_region_whose_storage_is_not_to_be_had_leaves_nothing(
    google: GcpDouble, migrated: Database, temporal_server: Client, region: tables.Region
) -> None:
    region_id, provider_id = region.id, region.provider_id
    google.cloud.faults.add(Fault(FaultKind.STOCKOUT, "compute.instances.insert", times=None))
    async with at_work(temporal_server, region_id):
        await begun(temporal_server, migrated, region)
        failed = await reaches(migrated, region_id, "failed")
        for zone in "abcf":
            assert f"{HERE}-{zone}/n1-standard-1" in str(failed.status_reason)
        assert_nothing_is_left(google, migrated, provider_id)
        handle = temporal_server.get_workflow_handle(f"region/{region_id}")
        await handle.signal("remove", Removal())
        await asyncio.wait_for(handle.result(), 60)
    assert google.cloud.machines.made == 0
