"""The runbook of a disputed charge does what it says, from the statement to the history.

The API, the ledger, Temporal with its UI, the job billing and the programs that are typed are real;
the node whose supervisor measures is one of the tests' world.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

import activities.temporal.client as temporal_client
from activities.billing import job_billing
from activities.db import tables
from activities.lifecycles.kinds import KINDS
from activities.outbox.workflow_starts import register
from tests.api.http_server import Person, Site
from tests.api.test_deployments import credit
from tests.client.served import served as api_served
from tests.docs.runbooks import RunbookReader, TemporalUi, pages_of, reader_of
from tests.docs.test_runbooks import programs, server, temporal
from tests.temporal_server import TemporalServer
from tests.waiting import eventually
from tests.workflows.conftest import at_work, end_open_workflows
from tests.workflows.fake_world import Run, World, node_address
from workflows.billing.job_billing import JobBilling
from workflows.contracts import queues
from workflows.contracts.billing import BalanceForecast, BilledWorker, BillingRequest, UsageRates
from workflows.contracts.statuses import RunState
from workflows.effects.billing import BillingDone, PostUsage

__all__ = ["programs", "server", "temporal"]

RUNBOOK = "deploy/runbooks/disputed-charge.md"
HOUR_S = 3600
ENDS_IN_S = 8
"""When the job's hour ends: not before its billing has started, also on a busy machine."""
RATES = UsageRates(gpu_count=1, microcredits_per_gpu_hour=250_000).model_dump(mode="json")


class Billed(World):
    """The tests' world, in which usage is posted in a real ledger."""

    def post_usage(self, asked: PostUsage) -> BalanceForecast:
        return job_billing.post_usage(asked)


async def _billed_job(site: Site, person: Person, temporal: Client, world: World) -> str:
    """A job whose billing has posted the hour that its node has measured, and has ended."""
    job_id = await person.job()
    began_at = datetime.now(UTC) - timedelta(seconds=HOUR_S - ENDS_IN_S)
    site.set(
        tables.Job, job_id, status="running", rates={"0": RATES},
        created_at=began_at - timedelta(minutes=1),
    )  # fmt: skip
    run_id = f"{job_id}-0-1"
    run = Run(RunState.RUNNING, 1)
    run.elapsed_s = float(HOUR_S)
    world.machines["nod-1"].runs[run_id] = run
    worker = BilledWorker(worker=0, run_id=run_id, node=node_address(), started_at=began_at)
    request = BillingRequest(
        job_id=job_id, account_id=person.account_id, attempt=1, started_at=began_at,
        workers=(worker,), period_s=HOUR_S,
    )  # fmt: skip
    handle = await temporal.start_workflow(
        JobBilling.run, request, id=f"job/{job_id}/billing", task_queue=queues.MAIN
    )
    await eventually(
        lambda: bool(site.rows(tables.LedgerTransaction, job_id=job_id)), "the hour is posted"
    )
    await handle.signal(JobBilling.settled, BillingDone(job_id=job_id, attempt=1))
    await handle.result()
    return job_id


@pytest.fixture
async def reader(
    site: Site, temporal: Client, server: TemporalServer, programs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[RunbookReader]:  # fmt: skip
    """Somebody with an administrator's key, and the charged job of another account."""
    register(KINDS)
    monkeypatch.setattr(temporal_client, "_client", temporal)
    monkeypatch.setattr(temporal_client, "_loop", asyncio.get_running_loop())
    admin, ada = site.account("admin", administrator=True), site.account("ada")
    credit(site, ada, 10)
    world = Billed(client=temporal)
    with api_served(site.app) as url:
        async with at_work(temporal, world):
            job_id = await _billed_job(site, ada, temporal, world)
            environment = {
                "TEMPORAL_CLI_ADDRESS": temporal.service_client.config.target_host,
                "BASELOAD_API": url,
                "BASELOAD_API_KEY": admin.secret,
            }
            [charge] = site.rows(tables.LedgerTransaction, job_id=job_id)
            names = {"acc-…": ada.account_id, "job-…": job_id, "txn-…": charge.id}
            yield reader_of(RUNBOOK, programs, environment, names)
            await end_open_workflows(temporal)


async def test_the_runbook_of_a_disputed_charge(
    reader: RunbookReader, server: TemporalServer, site: Site
) -> None:
    job_id, charge_id = reader.names["job-…"], reader.names["txn-…"]
    shown = await reader.types("baseload statement --account acc-… --limit")
    assert charge_id in shown
    assert job_id in shown
    found = json.loads(await reader.types("baseload statement --account acc-… --json"))
    assert [line["amount_microcredits"] for line in found["lines"]] == [-250_000]
    assert "3600 s from" in await reader.types("baseload charges --account acc-… job-…")
    measured = await reader.types("baseload charges --account acc-… --measurements")
    assert "supervisor, monotonic" in measured
    assert f"{HOUR_S} s" in measured
    assert charge_id in measured
    charges = json.loads(await reader.types("baseload charges --account acc-… --json"))
    details = charges["charges"][0]["details"]
    assert (details["from_s"], details["through_s"], details["rates"]) == (0, HOUR_S, RATES)

    assert "job.requested" in await reader.types("baseload events")
    history = await reader.types("tctl workflow show")
    assert "get_run_status" in history
    assert "elapsed_s" in history
    assert "post_usage" in history
    assert "COMPLETED" in (await reader.types("tctl workflow describe")).upper()
    workflow_id = f"job/{job_id}/billing"
    with closing(TemporalUi(server.ui_port)) as ui:
        run_id = ui.run_of(workflow_id)
        for page in pages_of(RUNBOOK):
            path = reader.named(page).replace("RUN", run_id)
            assert workflow_id.replace("/", "%2F") in path
            assert await asyncio.to_thread(ui.has_page, path), path

    assert "2 transactions" in await reader.types("baseload admin audit")
    assert "0.25 credits" in await reader.types("baseload admin reverse")
    after = await reader.types("baseload statement --account acc-… --job")
    assert f"reversal of {charge_id}: the node was broken" in after
    assert site.rows(tables.Job, id=job_id)[0].charged_microcredits == 0
    assert reader.untyped == set()
