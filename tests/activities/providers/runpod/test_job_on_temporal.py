"""A job that no node has room for, from its submission to its end, with RunPod's double: real
workflows, activities, SSH and processes on a pod that is made for it and taken away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

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
from activities.providers.rental_offers import keep_offers
from activities.providers.runpod.catalogue import runpod_offers
from activities.registry.planning import PLANNING
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from activities.site.node_client import close_connections
from activities.temporal.client import set_client
from tests.activities.placement.rows import add_waiting_job
from tests.activities.placement.test_rental_market import add_marketplace
from tests.doubles.rented.faults import FaultKind
from tests.doubles.runpod.double import API_KEY, RunPodDouble
from tests.waiting import eventually
from workers.main import ROW_THREADS, cloud_workers, main_worker
from workers.serving import serving
from workers.sites import site_worker
from workflows.contracts import queues
from workflows.contracts.job_submission import SubmittedEnvironment
from workflows.contracts.machines import MachineOffer

SECONDS_OF_THE_CLOUD_IN_ONE = 100.0
COMMAND = 'echo "image: $(command -v python3)"; echo done > "$BASELOAD_OUTPUT/result"'


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def double(
    make_runpod: Callable[..., RunPodDouble], monkeypatch: pytest.MonkeyPatch
) -> RunPodDouble:
    """A marketplace whose machines can be logged in to."""
    monkeypatch.setenv("BASELOAD_NODE_NETWORKS", "127.0.0.0/8")
    monkeypatch.setenv("BASELOAD_JOB_NETWORK_WALL", "false")
    made = make_runpod(rate=SECONDS_OF_THE_CLOUD_IN_ONE)
    settings.cache_clear()
    return made


@pytest.fixture
def region(double: RunPodDouble, migrated: Database, node_root: Path) -> tables.Region:
    """The implied region of a provider of an account in credit, with the offers of the moment."""
    bootstrap()
    now = datetime.now(UTC)
    with migrated.write() as session:
        account = session.exec(select(tables.Account)).one()
        add_credits(session, account, 1_000_000, "first", now)
        found = add_marketplace(session, account)
        found.node_root = str(node_root)
        provider = session.get_one(tables.Provider, found.provider_id)
        place = own_place("runpod", provider.id)
        provider.credentials = seal_credentials(session, account.id, place, API_KEY, now)
    offers = runpod_offers(found.provider_id)
    with migrated.write() as session:
        keep_offers(session, found.provider_id, offers, now)
    return found


@asynccontextmanager
async def at_work(client: Client) -> AsyncIterator[None]:
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


async def submitted(client: Client, database: Database) -> str:
    """The id of a job with an image that asks for one A100, begun as the API begins it."""
    with database.write() as session:
        account = session.exec(select(tables.Account)).one()
        job = add_waiting_job(
            session,
            account,
            environment=SubmittedEnvironment(image="runpod/base:1.0"),
            created_at=datetime.now(UTC),
        )
        job.status, job.spec = "new", {**job.spec, "workers": [{"command": COMMAND}]}
        request = create(session, job)
    await relay(client, [request])
    return job.id


def distrusted(database: Database) -> dict[str, str]:
    """The events of nodes whose host was distrusted, by node; none of them came to any work."""
    with database.read() as session:
        events = session.exec(select(tables.EventRow)).all()
    found = {one.resource_id: one.message for one in events if one.type == "node.host-distrusted"}
    worked = {one.resource_id for one in events if one.type in ("node.preparing", "node.active")}
    assert not found.keys() & worked, "nothing ran there"
    return found


def shunned(database: Database) -> dict[str, timedelta]:
    """For how long from now what is rented no more, by its scope."""
    with database.read() as session:
        rows = session.exec(select(tables.ShortageRow)).all()
    return {row.scope: row.until - datetime.now(UTC) for row in rows}


def is_over(double: RunPodDouble, database: Database) -> bool:
    with database.read() as session:
        nodes = session.exec(select(tables.Node.status)).all()
        leases = session.exec(select(tables.Lease.status)).all()
    return not double.pods.by_id and {*nodes, *leases} == {"archived", "released"}


async def test_a_job_runs_in_its_image_on_a_pod_that_is_gone_and_paid_for_after(
    double: RunPodDouble, region: tables.Region, migrated: Database, temporal_server: Client
) -> None:
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated)
        handle = temporal_server.get_workflow_handle(f"job/{job_id}")
        ended = await asyncio.wait_for(handle.result(), 300)
        await eventually(lambda: is_over(double, migrated), "nothing is left of its machine")
    assert ended["status"] == "finished", ended
    assert double.pods.made == 1
    with migrated.read() as session:
        (lease,) = session.exec(select(tables.Lease)).all()
        (node,) = session.exec(select(tables.Node)).all()
    assert node.region_id == region.id
    charged = sum(each.price for each in double.meter.charges)
    assert lease.microcredits_per_hour == pytest.approx(charged, abs=1), "with its disk"
    assert 1_190_000 < charged < 1_200_000, "of the cheapest A100"
    assert lease.began_at is not None
    assert lease.ended_at is not None


async def test_a_pod_with_other_gpus_is_gone_before_any_work_and_its_offer_is_left_alone(
    double: RunPodDouble, region: tables.Region, migrated: Database, temporal_server: Client
) -> None:
    double.fault(FaultKind.OTHER_MACHINE, "pods.create")
    async with at_work(temporal_server):
        job_id = await submitted(temporal_server, migrated)
        handle = temporal_server.get_workflow_handle(f"job/{job_id}")
        ended = await asyncio.wait_for(handle.result(), 300)
        await eventually(lambda: is_over(double, migrated), "nothing is left of the machines")
    assert ended["status"] == "finished", ended
    assert double.pods.made == 2
    (message,) = distrusted(migrated).values()
    assert "was created with A100-80GB, has RTXA4000" in message
    (scope,) = (scope for scope, left in shunned(migrated).items() if left > timedelta(minutes=50))
    assert scope in message
    with migrated.read() as session:
        leases = session.exec(select(tables.Lease).order_by(col(tables.Lease.id))).all()
    first, second = (MachineOffer.model_validate(lease.offer).scope for lease in leases)
    assert first == scope != second
