"""Fifty clients spend one balance at the same time: it is overdrawn by one running second at most.

The job billings, their posting, the rows and the ledger are the real ones; instead of an engine, a
clock skips ahead while all job billings wait. At each instant those that wake up post at once.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from types import SimpleNamespace

import pytest
from sqlalchemy import update
from sqlmodel import Session, col, select

from activities.billing import runway, usage
from activities.billing.job_billing import post_usage
from activities.billing.ledger import add_credits, balance_of
from activities.billing.ledger_audit.audit import audit
from activities.billing.payers import credits_name
from activities.db import tables
from activities.db.session import Database
from tests.activities.rows import NOW, add_job, add_payer
from tests.workflows.fake_world import node_address
from workflows.billing import job_billing
from workflows.billing.job_billing import JobBilling
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
"""Microcredits; all clients together would use them up in about 20 minutes."""
LATEST = timedelta(hours=50)


class SkippedClock:
    """A clock that goes to the next wakeup when all job billings wait, and their effects."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.now = datetime(2026, 3, 2, 9, 0, 0, 400_000, tzinfo=UTC)
        self.billings: dict[str, JobBilling] = {}
        self.began: dict[str, datetime] = {}
        self.ended: dict[str, datetime] = {}
        self._busy = 0
        self._all_wait = asyncio.Event()
        self._waiting: list[tuple[datetime, Callable[[], bool], asyncio.Future[None]]] = []

    async def wait_until(
        self, condition: Callable[[], bool], limit: timedelta, summary: str = ""
    ) -> bool:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.now + limit, condition, woken))
        self._rest()
        await woken
        return condition()

    async def run_all(self) -> None:
        """Run all job billings to their end."""
        limit = self.now + LATEST
        self._busy = len(self.billings)
        async with asyncio.TaskGroup() as group:
            for job_id in self.billings:
                group.create_task(self._run(job_id))
            while True:
                await self._all_wait.wait()
                self._all_wait.clear()
                if not self._waiting:
                    return
                self._deliver_rechecks()
                if not any(condition() for _, condition, _ in self._waiting):
                    self.now = min(deadline for deadline, _, _ in self._waiting)
                    assert self.now < limit
                self._wake()

    async def _run(self, job_id: str) -> None:
        worker = BilledWorker(
            worker=0, run_id=job_id, node=node_address(), started_at=self.began[job_id]
        )
        await self.billings[job_id].run(request_of(job_id, worker))
        self._rest()

    def _rest(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._all_wait.set()

    def _wake(self) -> None:
        woken = [each for each in self._waiting if each[0] <= self.now or each[1]()]
        self._waiting = [each for each in self._waiting if each not in woken]
        self._busy += len(woken)
        for _, _, future in woken:
            future.set_result(None)

    def _deliver_rechecks(self) -> None:
        """What the relay of the outbox does."""
        with self.database.write() as session:
            query = select(tables.OutboxRow).where(col(tables.OutboxRow.delivered_at).is_(None))
            for row in session.exec(query):
                row.delivered_at = self.now
                job_id, _, part = row.resource_id.partition("/")
                if (part, row.verb) == ("billing", "recheck_balance"):
                    self.billings[job_id].recheck_balance()

    def usage(self, job_id: str) -> WorkerUsage:
        seconds = int((self.ended.get(job_id, self.now) - self.began[job_id]).total_seconds())
        return WorkerUsage(
            job_id=job_id, worker=0, attempt=1, started_at=self.began[job_id], through_s=seconds
        )

    async def post(self, command: PostUsage) -> BalanceForecast:
        return await asyncio.to_thread(post_usage, command)

    async def run_status(self, asked: GetRunStatus, *, summary: str) -> RunReport:
        assert summary
        measured_s = self.usage(asked.run_id).through_s
        return RunReport(run_id=asked.run_id, state=RunState.RUNNING, elapsed_s=measured_s)

    async def end_job(self, command: TellJobToEnd) -> Done:
        """The job ends at once, and posts what its node has measured until then."""
        job_id = command.job_id
        self.ended.setdefault(job_id, self.now)
        await self.post(PostUsage(usages=(self.usage(job_id),)))
        with self.database.write() as session:
            session.get_one(tables.Job, job_id).status = "failed"
            of_job = update(tables.UsageMeter).where(col(tables.UsageMeter.job_id) == job_id)
            session.execute(of_job.values(running=False))
        self.billings[job_id].settled(BillingDone(job_id=job_id, attempt=1))
        return Done()


def request_of(job_id: str, worker: BilledWorker) -> BillingRequest:
    return BillingRequest(
        job_id=job_id,
        account_id="acc-1",
        attempt=1,
        started_at=worker.started_at,
        workers=(worker,),
    )


@pytest.fixture
def clock(migrated: Database, monkeypatch: pytest.MonkeyPatch) -> SkippedClock:
    made = SkippedClock(migrated)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return made.now.astimezone(tz)

    for module in (usage, runway):
        monkeypatch.setattr(module, "datetime", Clock)
    engine = SimpleNamespace(
        now=lambda: made.now,
        info=lambda: SimpleNamespace(is_continue_as_new_suggested=lambda: False),
        logger=logging.getLogger("billing"),
    )
    monkeypatch.setattr(job_billing, "workflow", engine)
    monkeypatch.setattr(job_billing, "wait_until", made.wait_until)
    monkeypatch.setattr(job_billing, "post_usage", SimpleNamespace(run_locally=made.post))
    monkeypatch.setattr(job_billing, "get_run_status", made.run_status)
    monkeypatch.setattr(job_billing, "tell_job_to_end", made.end_job)
    return made


def add_clients(session: Session, clock: SkippedClock) -> int:
    """Add the payer and the jobs of its clients; return what they cost together in a second."""
    payer = add_payer(session)
    add_credits(session, payer, GIVEN, "first", NOW)
    burn = 0
    for number in range(CLIENTS):
        rates = UsageRates(gpu_count=1 + number % 8, microcredits_per_gpu_hour=250_000)
        job = add_job(session, payer)
        job.status, job.rates = "running", {"0": rates.model_dump(mode="json")}
        burn += rates.microcredits_per_hour
        clock.began[job.id] = clock.now
        worker = BilledWorker(worker=0, run_id=job.id, node=node_address(), started_at=clock.now)
        clock.billings[job.id] = JobBilling(request_of(job.id, worker))
    return burn // 3600


async def test_fifty_clients_overdraw_one_balance_by_one_running_second_at_most(
    migrated: Database, clock: SkippedClock
) -> None:
    with migrated.write() as session:
        second = add_clients(session, clock)
    await clock.run_all()
    with migrated.read() as session:
        [payer] = session.exec(select(tables.UsageMeter.payer_id).distinct())
        left = balance_of(session, credits_name(payer))
        found = audit(session)
    assert found.differences == ()
    assert clock.ended.keys() == clock.began.keys()
    assert -second <= left <= 0
