"""Fifty clients spend one balance at the same time: it is overdrawn by one running second at most.

The job billings, the rows and the ledger are the real ones; the nodes and the clock are doubles.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

import pytest
from sqlalchemy import update
from sqlmodel import col, select
from temporalio import activity
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.billing import runway, usage
from activities.billing.job_billing import post_usage
from activities.billing.ledger import add_credits, balance_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name
from activities.db import tables
from activities.db.session import Database
from activities.temporal.client import set_client
from tests.activities.rows import NOW, add_job, add_payer
from tests.waiting import eventually
from tests.workflows.fake_world import node_address
from tests.workflows.time_skipping import skipping_clock
from workers.registry import workflow_runner
from workflows.billing.job_billing import JobBilling
from workflows.contracts import queues
from workflows.contracts.base import Done
from workflows.contracts.billing import (
    BalanceForecast,
    BilledWorker,
    BillingRequest,
    UsageRates,
    WorkerUsage,
)
from workflows.contracts.jobs import RunReport
from workflows.contracts.statuses import RunState
from workflows.effects.billing import BillingDone, PostUsage, TellJobToEnd
from workflows.effects.jobs import GetRunStatus

CLIENTS = 50
GIVEN = 20_000_000
"""Microcredits; all clients together use them up in about 20 minutes."""

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


@dataclass
class Clients:
    """The clients' jobs on nodes that run by the skipped clock."""

    environment: WorkflowEnvironment
    database: Database
    now: datetime
    began: dict[str, datetime] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)

    async def look(self) -> datetime:
        self.now = max(self.now, await self.environment.get_current_time())
        return self.now

    def usage(self, job_id: str, at: datetime) -> WorkerUsage:
        began = self.began[job_id]
        seconds = int((min(at, self.ended.get(job_id, at)) - began).total_seconds())
        return WorkerUsage(
            job_id=job_id, worker=0, attempt=1, started_at=began, through_s=max(0, seconds)
        )

    @activity.defn(name="post_usage")
    async def post_usage(self, command: PostUsage) -> BalanceForecast:
        await self.look()
        return await asyncio.to_thread(post_usage, command)

    @activity.defn(name="get_run_status")
    async def get_run_status(self, asked: GetRunStatus) -> RunReport:
        measured = self.usage(asked.run_id, await self.look()).through_s
        return RunReport(run_id=asked.run_id, state=RunState.RUNNING, elapsed_s=measured)

    @activity.defn(name="tell_job_to_end")
    async def tell_job_to_end(self, command: TellJobToEnd) -> Done:
        """The job ends at once, and posts what its node has measured until then."""
        job_id = command.job_id
        self.ended.setdefault(job_id, await self.look())
        await asyncio.to_thread(self._settle, job_id)
        handle = self.environment.client.get_workflow_handle(f"job/{job_id}/billing")
        await handle.signal(JobBilling.settled, BillingDone(job_id=job_id, attempt=1))
        return Done()

    def _settle(self, job_id: str) -> None:
        post_usage(PostUsage(usages=(self.usage(job_id, self.ended[job_id]),)))
        with self.database.write() as session:
            session.get_one(tables.Job, job_id).status = "failed"
            of_job = update(tables.UsageMeter).where(col(tables.UsageMeter.job_id) == job_id)
            session.execute(of_job.values(running=False))

    async def begin(self, job_id: str) -> None:
        began = self.began[job_id] = await self.look()
        worker = BilledWorker(worker=0, run_id=job_id, node=node_address(), started_at=began)
        await self.environment.client.start_workflow(
            JobBilling.run,
            BillingRequest(
                job_id=job_id, account_id="acc-1", attempt=1, started_at=began, workers=(worker,)
            ),
            id=f"job/{job_id}/billing",
            task_queue=queues.MAIN,
        )

    def has_begun(self) -> bool:
        undelivered = col(tables.OutboxRow.delivered_at).is_(None)
        with self.database.read() as session:
            begun = len(session.exec(select(tables.UsageMeter.job_id)).all())
            waiting = session.exec(select(tables.OutboxRow.id).where(undelivered)).first()
        return begun == len(self.began) and waiting is None


@asynccontextmanager
async def clients(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Clients]:
    async with skipping_clock() as environment:
        made = Clients(environment, database, await environment.get_current_time())

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                return made.now.astimezone(tz)

        for module in (usage, runway):
            monkeypatch.setattr(module, "datetime", Clock)
        set_client(environment.client)
        main = Worker(
            environment.client,
            task_queue=queues.MAIN,
            workflows=[JobBilling],
            activities=[made.post_usage, made.tell_job_to_end],
            workflow_runner=workflow_runner(),
        )
        site = Worker(environment.client, task_queue=queues.SITE, activities=[made.get_run_status])
        async with main, site:
            yield made


async def test_fifty_clients_overdraw_one_balance_by_one_running_second_at_most(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, GIVEN, "first", NOW)
        jobs = [add_job(session, account) for _ in range(CLIENTS)]
        for number, job in enumerate(jobs):
            rates = UsageRates(gpu_count=1 + number % 8, microcredits_per_gpu_hour=250_000)
            job.status, job.rates = "running", {"0": rates.model_dump(mode="json")}
    burn = sum((1 + number % 8) * 250_000 for number in range(CLIENTS))
    async with clients(migrated, monkeypatch) as made:
        await asyncio.gather(*(made.begin(job.id) for job in jobs))
        await eventually(made.has_begun, "all are billed", limit_s=60)
        for _ in range(10 * 60):
            if len(made.ended) == CLIENTS:
                break
            await made.environment.sleep(timedelta(minutes=1))
        assert len(made.ended) == CLIENTS
    with migrated.read() as session:
        left = balance_of(session, credits_name(account.id))
        found = audit(session)
    assert found.differences == ()
    print('LEFT', left, burn / 3600, sorted((e - made.began[j]).total_seconds() for j, e in made.ended.items())[::7])
    assert -burn // 3600 <= left <= 0
