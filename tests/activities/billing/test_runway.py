"""When an account is empty: real bills, real rows, a real server; only the nodes are doubles."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from activities.billing.job_billing import begin_billing, post_usage, tell_job_to_end
from activities.billing.ledger import add_credits, balance_of
from activities.billing.payers import credits_name
from activities.billing.runway import recompute_runway
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.outbox.relay import relay
from activities.temporal.client import set_client
from tests.activities.outbox.test_relay import signals_of
from tests.activities.rows import NOW, add_job, add_payer, add_region
from tests.waiting import eventually
from workers.registry import workflow_runner
from workflows.billing.job_billing import JobBilling
from workflows.contracts import queues
from workflows.contracts.billing import BilledWorker, BillingRequest
from workflows.contracts.jobs import RunReport
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import GetRunStatus
from workflows.rules.billing.usage_fees import usage_rates
from workflows.rules.billing.utc_days import DAY

REGION = "reg-1"
_NODE = NodeAddress(node_id="nod-1", region_id=REGION, host="h", port=1, minion_id="m")


@pytest.fixture
def payer(migrated: Database) -> tables.Account:
    """Four hours of one A100, or two seconds of 7200."""
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 1_000_000, "first", NOW)
        return account


@asynccontextmanager
async def bills(client: Client) -> AsyncIterator[None]:
    """The billing workflow and its effects; commands run by this process's clock."""
    began = datetime.now(UTC)

    @activity.defn(name="get_run_status")
    async def look(asked: GetRunStatus) -> RunReport:
        elapsed_s = (datetime.now(UTC) - began).total_seconds()
        return RunReport(run_id=asked.run_id, state=RunState.RUNNING, elapsed_s=elapsed_s)

    set_client(client)
    with ThreadPoolExecutor(2) as rows:
        main = Worker(
            client,
            task_queue=queues.MAIN,
            workflows=[JobBilling],
            activities=[post_usage, tell_job_to_end],
            activity_executor=rows,
            workflow_runner=workflow_runner(),
        )
        site = Worker(client, task_queue=queues.SITE, activities=[look])
        async with main, site:
            yield


async def begin(database: Database, client: Client, payer: tables.Account, gpus: int) -> str:
    """The id of a job that runs, whose workflow nobody serves, and whose bill has begun."""
    rates = usage_rates("A100", gpus, 2, NOW, cpu_core_hour=0).model_dump(mode="json")
    with database.write() as session:
        job = add_job(session, payer)
        job.status, job.rates = "running", {"0": rates}
    await client.start_workflow("JobLifecycle", id=f"job/{job.id}", task_queue="nobody")
    began = datetime.now(UTC)
    worker = BilledWorker(worker=0, run_id=f"{job.id}-0-1", node=_NODE, started_at=began)
    request = BillingRequest(
        job_id=job.id, account_id=payer.id, attempt=1, started_at=began, workers=(worker,)
    )
    await begin_billing(request)
    await eventually(lambda: _posted_s(database, job.id) is not None, "its bill has begun")
    return job.id


def _posted_s(database: Database, job_id: str) -> int | None:
    with database.read() as session:
        meter = session.get(tables.UsageMeter, (job_id, 0, 1))
        return None if meter is None else meter.posted_s


async def test_the_last_credit_ends_every_job_that_costs_and_none_that_does_not(
    migrated: Database, payer: tables.Account, temporal_server: Client
) -> None:
    async with bills(temporal_server):
        modest = await begin(migrated, temporal_server, payer, gpus=1)
        free = await begin(migrated, temporal_server, payer, gpus=0)
        greedy = await begin(migrated, temporal_server, payer, gpus=7200)
        for job_id in (greedy, modest):

            async def is_told(job_id: str = job_id) -> bool:
                return set(await signals_of(temporal_server, f"job/{job_id}")) == {"stop"}

            await eventually(is_told, f"{job_id} is told to end")
        assert (_posted_s(migrated, modest) or 0) > 0, "what it ran is posted, hours before its own"
        assert await signals_of(temporal_server, f"job/{free}") == []
        for job_id in (modest, free, greedy):
            for workflow_id in (f"job/{job_id}", f"job/{job_id}/billing"):
                await temporal_server.get_workflow_handle(workflow_id).terminate()


async def test_the_newest_job_ends_a_minute_before_the_credits_and_an_older_one_runs_on(
    migrated: Database, payer: tables.Account, temporal_server: Client
) -> None:
    """Two jobs of 29 credits an hour have used up one credit after 62 seconds."""
    async with bills(temporal_server):
        older = await begin(migrated, temporal_server, payer, gpus=116)
        newest = await begin(migrated, temporal_server, payer, gpus=116)

        async def is_told() -> bool:
            return set(await signals_of(temporal_server, f"job/{newest}")) == {"stop"}

        await eventually(is_told, "the newest job is told to end")
        assert await signals_of(temporal_server, f"job/{older}") == []
        with migrated.read() as session:
            assert balance_of(session, credits_name(payer.id)) > 0
        for job_id in (older, newest):
            for workflow_id in (f"job/{job_id}", f"job/{job_id}/billing"):
                await temporal_server.get_workflow_handle(workflow_id).terminate()


async def test_fees_of_devices_that_are_not_charged_yet_end_the_jobs_of_their_payer(
    migrated: Database, payer: tables.Account, temporal_server: Client
) -> None:
    """The balance is above zero all the time, and of hours; ten devices of yesterday are more."""
    async with bills(temporal_server):
        job_id = await begin(migrated, temporal_server, payer, gpus=1)
        with migrated.write() as session:
            account = session.get_one(tables.Account, payer.id)
            region_id, long_ago = add_region(session, account).id, datetime.now(UTC) - 2 * DAY
            session.add_all(
                tables.Device(
                    id=new_id("dev"), account_id=payer.id, name=str(number), status="active",
                    region_id=region_id, minion_id=str(number), requirements=[],
                    created_at=long_ago, updated_at=long_ago,
                )
                for number in range(10)
            )  # fmt: skip
            session.flush()
            requests = recompute_runway(session, payer.id, added=1)
        await relay(temporal_server, requests)

        async def is_asked_to_end() -> bool:
            return set(await signals_of(temporal_server, f"job/{job_id}")) == {"stop"}

        await eventually(is_asked_to_end, "the job is asked to end")
        with migrated.read() as session:
            assert balance_of(session, credits_name(payer.id)) > 0
        for workflow_id in (f"job/{job_id}", f"job/{job_id}/billing"):
            await temporal_server.get_workflow_handle(workflow_id).terminate()
