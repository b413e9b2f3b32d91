"""A job that no node has room for, from its submission to its bill, with Google's double: real
workflows, activities, SSH and processes on machines that are made for it and taken away."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from sqlmodel import col, select
from temporalio.client import Client
from temporalio.worker import Worker

from activities.accounts.bootstrap import bootstrap
from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from activities.outbox.relay import relay
from activities.outbox.requests import create
from activities.providers.gcp.network import make_network
from activities.providers.gcp.session import google_session
from activities.providers.gcp.subnetworks import make_subnetwork
from activities.registry.planning import PLANNING
from activities.secrets.credentials import own_place, seal_credentials
from activities.site.node_client import close_connections
from activities.temporal.client import set_client
from tests.activities.cloud_rows import add_cloud_region
from tests.activities.placement.rows import add_waiting_job
from tests.activities.providers.gcp.keys import key_file
from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.fixtures import contained
from tests.waiting import eventually
from workers.main import ROW_THREADS, cloud_workers, main_worker
from workers.runner.probes import free_port
from workers.serving import serving
from workers.sites import site_worker
from workflows.contracts import queues
from workflows.contracts.jobs import JobReport, NodeReachable
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.metering import cumulative_microcredits

__all__ = ["contained"]
OPERATIONS_ARE_FASTER = 200.0
FEE = 250_000
"""Microcredits for an hour of an A100: ours."""
LOOK_S = 0.5
COMMAND = """bash -c 'echo begun
until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done
echo done > "$BASELOAD_OUTPUT/result"'"""


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def google(
    make_gcp: Callable[..., GcpDouble],
    contained: ContainedBoot,
    monkeypatch: pytest.MonkeyPatch,
) -> GcpDouble:
    """A cloud whose machines can be logged in to."""
    double = make_gcp(boot=contained, time_scale=OPERATIONS_ARE_FASTER)
    for name, value in double.environment.items():
        monkeypatch.setenv(name, value)
    return double


@pytest.fixture
def region_id(google: GcpDouble, migrated: Database) -> str:
    """A healthy region of an account in credit, with its network in the cloud."""
    bootstrap()
    now = datetime.now(UTC)
    with migrated.write() as session:
        account = session.exec(select(tables.Account)).one()
        add_credits(session, account, 1_000_000, "first", now)
        region = add_cloud_region(session, account)
        zone = own_place("gcp", region.provider_id)
        provider = session.get_one(tables.Provider, region.provider_id)
        provider.credentials = seal_credentials(session, account.id, zone, key_file(google), now)
    asked = google_session(region.provider_id)
    make_network(asked, region.provider_id)
    make_subnetwork(asked, region.provider_id, "us-central1")
    return region.id


@asynccontextmanager
async def at_work(client: Client, region_id: str) -> AsyncIterator[None]:
    """Workers of every queue that a job meets."""
    set_client(client)
    with ThreadPoolExecutor(ROW_THREADS) as rows, ThreadPoolExecutor(1) as rules:
        planning = Worker(
            client,
            task_queue=queues.PLANNING,
            activities=PLANNING,
            activity_executor=rules,
            max_concurrent_activities=1,
        )
        workers = (main_worker(client, rows), planning, site_worker(client, queues.SITE))
        async with serving(*workers, *cloud_workers(client)):
            yield
    await close_connections()


async def submitted(client: Client, database: Database, command: str) -> str:
    """The id of a job that asks for one A100, begun as the API begins it."""
    with database.write() as session:
        account = session.exec(select(tables.Account)).one()
        job = add_waiting_job(session, account, created_at=datetime.now(UTC))
        job.status, job.spec = "new", {**job.spec, "workers": [{"command": command}]}
        request = create(session, job)
    await relay(client, [request])
    return job.id


def job_of(database: Database, job_id: str) -> tables.Job:
    with database.read() as session:
        return session.get_one(tables.Job, job_id)


def leases_of(database: Database) -> list[tables.Lease]:
    with database.read() as session:
        return list(session.exec(select(tables.Lease).order_by(tables.Lease.id)))


def posted(database: Database, job_id: str) -> int:
    """Microcredits that the platform has earned with the job."""
    with database.read() as session:
        rows = session.exec(
            select(tables.LedgerPosting)
            .join(tables.LedgerTransaction)
            .where(
                tables.LedgerTransaction.job_id == job_id,
                tables.LedgerPosting.ledger_account == "platform/usage-fees",
            )
        )
        return sum(row.amount_microcredits for row in rows)


async def measured(client: Client, job_id: str) -> None:
    """Until the job has seen its command run for more than a second."""
    handle = client.get_workflow_handle(f"job/{job_id}")

    asked_at = 0.0

    async def is_measured() -> bool:
        nonlocal asked_at
        report: JobReport = await handle.query("status", result_type=JobReport)
        (worker,) = report.workers
        if worker.assignment is not None and time.monotonic() - asked_at > LOOK_S:
            asked_at = time.monotonic()
            node_id = worker.assignment.node.node_id
            await handle.signal("node_reachable", NodeReachable(node_id=node_id))
        return worker.elapsed_s > 1

    await eventually(is_measured, "its seconds are measured")


async def test_a_preempted_job_finishes_on_another_machine_and_all_is_gone_and_billed(
    google: GcpDouble, migrated: Database, temporal_server: Client, region_id: str
) -> None:
    port = free_port()
    async with at_work(temporal_server, region_id):
        job_id = await submitted(temporal_server, migrated, COMMAND.format(port=port))
        await running(migrated, job_id, attempt=1)
        await measured(temporal_server, job_id)
        await preempt(google, temporal_server, migrated)
        await running(migrated, job_id, attempt=2)
        await measured(temporal_server, job_id)
        with socket.create_server(("127.0.0.1", port)):
            job = temporal_server.get_workflow_handle(f"job/{job_id}")
            ended = await asyncio.wait_for(job.result(), 60)
        await eventually(lambda: is_over(google, migrated), "nothing is left of its machines")
    assert ended["status"] == "finished"
    assert google.cloud.machines.made == 2
    assert_billed(migrated, job_id)
    assert_meters_agree(google, migrated)


async def running(database: Database, job_id: str, attempt: int) -> None:
    def runs() -> bool:
        job = job_of(database, job_id)
        return (job.status, job.attempt) == (JobStatus.RUNNING, attempt)

    await eventually(runs, f"its attempt {attempt} runs on a machine made for it", 90)


async def preempt(google: GcpDouble, client: Client, database: Database) -> None:
    """Google takes the machine back, and its lease has news of it."""
    (lease,) = leases_of(database)
    with google.cloud.lock:
        (path,) = google.cloud.machines.vms
        assert google.cloud.machines.preempt(path)
    await client.get_workflow_handle(f"lease/{lease.id}").signal("refresh")


def is_over(google: GcpDouble, database: Database) -> bool:
    with google.cloud.lock:
        if google.cloud.machines.vms:
            return False
    with database.read() as session:
        nodes = session.exec(select(tables.Node.status)).all()
    leases = leases_of(database)
    return {*nodes, *(lease.status for lease in leases)} == {"archived", "released"}


def assert_billed(database: Database, job_id: str) -> None:
    """Each attempt for the seconds that were measured, at our fee; nothing is held any more."""
    with database.read() as session:
        meters = session.exec(select(tables.UsageMeter)).all()
        held = select(tables.Allocation.id).where(col(tables.Allocation.released_at).is_(None))
        assert session.exec(held).all() == []
    assert sorted(meter.attempt for meter in meters) == [1, 2]
    assert all(meter.posted_s >= 1 for meter in meters)
    spent = sum(cumulative_microcredits(FEE, meter.posted_s) for meter in meters)
    assert job_of(database, job_id).charged_microcredits == posted(database, job_id) == spent


def assert_meters_agree(google: GcpDouble, database: Database) -> None:
    """What each lease has counted is what the cloud has charged, to the second."""
    for lease, charge in zip(leases_of(database), google.cloud.meter.charges, strict=True):
        assert lease.began_at is not None
        assert lease.ended_at is not None
        leased_s = (lease.ended_at - lease.began_at).total_seconds()
        assert abs(leased_s - charge.seconds(0)) < 1
