"""A lease by its workflow, real activities and Google's double: preempted, told, accounted."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select
from temporalio.client import Client
from temporalio.worker import Worker

from activities.db import tables
from activities.db.session import Database
from activities.lifecycles.restarts import restart_of
from activities.providers.gcp.driver import google_machines
from activities.providers.gcp.project_resources import RESOURCES
from activities.providers.gcp.session import google_session
from activities.providers.gcp.subnetworks import make_subnetwork
from activities.providers.notifications import start_listening
from activities.registry.main import MAIN
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from activities.temporal.client import set_client
from tests.activities.leases.rows import OFFER, Books, lease_row
from tests.activities.providers.gcp.keys import key_file
from tests.activities.rows import NOW
from tests.activities.waiting import wait_for
from tests.doubles.gcp.double import GcpDouble
from tests.waiting import eventually
from workers.main import cloud_workers, notifications_worker
from workers.registry import workflow_runner
from workers.serving import serving
from workflows.contracts import queues
from workflows.contracts.events import LeaseEvent
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.machines import MachineObservation, MachineSpec
from workflows.contracts.statuses import LeaseStatus, ProviderKind
from workflows.effects.providers import StartNotifications
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.providers.notifications import ProviderNotifications

LEASE, ZONE = "lea-preempted", "us-central1-a"
SPOT = OFFER.model_copy(
    update={"zone": ZONE, "machine_type": "n1-standard-8", "gpu_type": "T4", "gpu_count": 1,
            "spot": True}
)  # fmt: skip


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def books(gcp: GcpDouble, migrated: Database, monkeypatch: pytest.MonkeyPatch) -> Books:
    """A provider that is ready at Google, with a network in one region."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPlatform baseload"
    monkeypatch.setattr("activities.providers.gcp.driver.region_public_key", lambda _: key)
    found = Books(migrated)
    with migrated.write() as session:
        zone = own_place("gcp", found.provider_id)
        reference = seal_credentials(session, found.account_id, zone, key_file(gcp), NOW)
        session.get_one(tables.Provider, found.provider_id).credentials = reference
    google = google_session(found.provider_id)
    for resource in RESOURCES.values():
        resource.make(google, found.provider_id)
    make_subnetwork(google, found.provider_id, "us-central1")
    return found


def made(books: Books) -> MachineObservation:
    """The lease's machine, as it is once it answers."""
    name, driver = f"baseload-{LEASE}", google_machines(books.provider_id)
    driver.create(name, SPOT, MachineSpec(lifetime_s=3600, tags={"region": "reg-1"}))

    def look() -> MachineObservation | None:
        seen = driver.find(name, ZONE)
        return seen if seen is not None and seen.is_reachable else None

    seen = wait_for(look, "it runs")
    assert seen is not None
    return seen


def leased(books: Books, seen: MachineObservation) -> None:
    known = seen.model_dump(exclude={"state", "zone", "offer_label", "reason", "internal_host"})
    row = lease_row(books, LEASE, LeaseStatus.READY)
    row.sqlmodel_update({**known, "offer": SPOT.model_dump(mode="json"), "sequence": 4})
    row.deadline = datetime.now(UTC) + timedelta(hours=1)
    with books.database.write() as session:
        session.add(row)


@asynccontextmanager
async def at_work(client: Client) -> AsyncIterator[None]:
    set_client(client)
    with ThreadPoolExecutor(4) as threads:
        async with (
            Worker(
                client,
                task_queue=queues.MAIN,
                workflows=[LeaseLifecycle, ProviderNotifications],
                activities=MAIN,
                activity_executor=threads,
                workflow_runner=workflow_runner(),
            ),
            serving(notifications_worker(client), *cloud_workers(client)),
        ):
            yield


async def test_a_lease_says_that_its_machine_was_deleted_by_name(
    gcp: GcpDouble, books: Books, temporal_server: Client
) -> None:
    leased(books, await asyncio.to_thread(made, books))
    gcp.cloud.knows_numbers = False
    with books.database.read() as session:
        start = restart_of(session, session.get_one(tables.Lease, LEASE))
    async with at_work(temporal_server):
        handle = await temporal_server.start_workflow(
            start.workflow, start.argument, id=start.id, task_queue=queues.MAIN
        )
        await handle.signal("release", LeaseRelease(reason="its job has ended", by_holder=True))
        await asyncio.wait_for(handle.result(), 30)
    assert gcp.cloud.machines.vms == {}
    with books.database.read() as session:
        row = session.get_one(tables.Lease, LEASE)
        query = select(tables.EventRow).where(
            tables.EventRow.type == LeaseEvent.TERMINATED_OTHERWISE
        )
        (event,) = session.exec(query).all()
    assert row.status == "released"
    assert f"its number {row.provider_machine_id} was not found" in event.message


async def test_a_preempted_machine_s_lease_ends_with_it_and_costs_what_the_meter_says(
    gcp: GcpDouble, books: Books, temporal_server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    interval = "workflows.leases.lease_lifecycle.NOTIFIED_POLL_INTERVAL"
    monkeypatch.setattr(interval, timedelta(milliseconds=200))
    seen = await asyncio.to_thread(made, books)
    leased(books, seen)
    with books.database.read() as session:
        start = restart_of(session, session.get_one(tables.Lease, LEASE))
    news = StartNotifications(provider_id=books.provider_id, kind=ProviderKind.GCP)
    async with at_work(temporal_server):
        handle = await temporal_server.start_workflow(
            start.workflow, start.argument, id=start.id, task_queue=queues.MAIN
        )
        for _ in range(2):
            await start_listening(news)
        await eventually(lambda: gcp.cloud.pubsub.pulls > 0, "its news is listened to")
        with gcp.cloud.lock:
            (vm,) = gcp.cloud.machines.vms.values()
            assert gcp.cloud.machines.preempt(vm.path)
        await asyncio.wait_for(handle.result(), 30)
        await temporal_server.get_workflow_handle(
            f"provider/{books.provider_id}/notifications"
        ).terminate("enough")
    with books.database.read() as session:
        row = session.get_one(tables.Lease, LEASE)
    assert (row.status, gcp.cloud.machines.vms) == ("released", {})
    # A poll may see the machine end before the notification comes.
    told = ("it was preempted at ", "the provider says that the machine is ")
    assert str(row.status_reason).startswith(told)
    assert row.began_at is not None
    assert row.ended_at is not None
    lasted_s = (row.ended_at - row.began_at).total_seconds()
    assert lasted_s == pytest.approx(gcp.cloud.meter.seconds(vm.name), abs=0.5)
