"""Bills over long times: through the engine with skipped hours, and through rules and ledger."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.billing.job_billing import post_usage
from activities.billing.ledger import add_credits
from activities.billing.ledger_audit.audit import audit
from activities.billing.usage import MOST_PERIODS
from activities.db.session import Database
from activities.db.tables import Job
from tests.activities.rows import NOW, add_job, add_payer
from tests.bench.home import home
from tests.bench.measure import Row, best_s
from tests.bench.stack import scaled
from tests.workflows.billing.test_job_billing import ClockedWorld
from tests.workflows.fake_world import Run, node_address
from tests.workflows.time_skipping import skipping_clock
from workers.registry import workflow_runner
from workflows.billing.job_billing import JobBilling
from workflows.contracts import queues
from workflows.contracts.billing import BilledWorker, BillingRequest, UsageRates, WorkerUsage
from workflows.contracts.statuses import RunState
from workflows.effects.billing import BillingDone, PostUsage
from workflows.rules.billing.metering import slices

ENGINE_JOBS = 200
ENGINE_HOURS = 24
RULES_JOBS = 10_000
RULES_HOURS = 720
LEDGER_JOBS = 20
HOUR_S = 3600


def rows() -> list[Row]:
    """Nothing is aimed at here; what counts is that every hour is there once."""
    return [_engine_row(), _rules_row(), _ledger_row(), _late_row()]


def _engine_row() -> Row:
    jobs = scaled(ENGINE_JOBS)
    name = f"billing through the engine: {jobs} jobs over {ENGINE_HOURS} skipped hours"
    try:
        seconds, posted_hours = asyncio.run(_through_the_engine(jobs))
    except RPCError as error:  # A busy machine does not skip an hour within the call's limit.
        return Row(name, "not measured", str(error))
    return Row(
        name,
        f"{seconds:.0f} s, {posted_hours / seconds:.0f} hours/s",
        f"{posted_hours:,} of {jobs * ENGINE_HOURS:,} hours posted, each once",
    )


def _rules_row() -> Row:
    jobs = scaled(RULES_JOBS)

    hours: set[int] = set()

    def cut() -> None:
        for _ in range(jobs):
            through_s = RULES_HOURS * HOUR_S
            for piece in slices(3_599_999, posted_s=0, through_s=through_s, period_s=HOUR_S):
                hours.add(piece.end_s)

    seconds = best_s(cut, runs=1)
    return Row(
        f"billing through the rules alone: {jobs:,} jobs over {RULES_HOURS} hours",
        f"{seconds:.1f} s, {jobs * RULES_HOURS / seconds:,.0f} hours/s",
    )


def _ledger_row() -> Row:
    """As many hours in a transaction each as the billing workflows of running jobs would post."""

    def post(job_ids: Sequence[str]) -> None:
        for hour in range(1, RULES_HOURS + 1):
            for job_id in job_ids:
                _post(job_id, hour * HOUR_S)

    jobs, seconds = _through_the_ledger(post)
    rate = jobs * RULES_HOURS / seconds
    return Row(
        f"billing through the ledger: {jobs:,} jobs over {RULES_HOURS} hours, a commit each",
        f"{rate:,.0f} hours/s",
        f"at that rate {RULES_JOBS:,} jobs: {RULES_JOBS / rate:.0f} s for each hour",
    )


def _late_row() -> Row:
    """The same hours when nothing was posted for all of them: each job in a few transactions."""

    def post(job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            _post(job_id, RULES_HOURS * HOUR_S)

    jobs, seconds = _through_the_ledger(post)
    rate = jobs * RULES_HOURS / seconds
    hours = RULES_JOBS * RULES_HOURS / rate / HOUR_S
    return Row(
        f"billing through the ledger: {jobs:,} jobs, {RULES_HOURS} hours late, "
        f"at most {MOST_PERIODS} hours a commit",
        f"{rate:,.0f} hours/s",
        f"at that rate {RULES_JOBS:,} jobs: {hours:.1f} h",
    )


def _through_the_ledger(post: Callable[[Sequence[str]], None]) -> tuple[int, float]:
    """How many jobs have posted all their hours, and the seconds of that.

    Raises: AssertionError, when an hour is missing or there twice, or the audit finds something.
    """
    jobs = scaled(LEDGER_JOBS)
    with home() as (_, opened):
        job_ids = _add_jobs(opened, jobs)
        seconds = best_s(lambda: post(job_ids), runs=1)
        with opened.read() as session:
            charged = sum(session.get_one(Job, job_id).charged_microcredits for job_id in job_ids)
            found = audit(session)
    if charged != jobs * RULES_HOURS * 1_000_000 or not found.is_clean:
        raise AssertionError(f"{jobs} jobs posted {charged} microcredits: {found.differences[:1]}")
    return jobs, seconds


def _add_jobs(opened: Database, count: int) -> list[str]:
    rates = UsageRates(gpu_count=1, microcredits_per_gpu_hour=1_000_000)
    with opened.write() as session:
        account = add_payer(session)
        add_credits(session, account, 10**15, "first", NOW)
        made = [add_job(session, account) for _ in range(count)]
        for job in made:
            job.status = "running"
            job.rates = {"0": rates.model_dump(mode="json")}
        return [job.id for job in made]


def _post(job_id: str, through_s: int) -> None:
    usage = WorkerUsage(job_id=job_id, worker=0, attempt=1, started_at=NOW, through_s=through_s)
    post_usage(PostUsage(usages=(usage,)))


async def _through_the_engine(jobs: int) -> tuple[float, int]:
    """Seconds for all, and the hours that were posted."""
    async with AsyncExitStack() as closing:
        environment = await closing.enter_async_context(skipping_clock())
        world = ClockedWorld()
        world.environment = environment
        for queue in (queues.MAIN, queues.SITE):
            worker = Worker(
                environment.client,
                task_queue=queue,
                workflows=[JobBilling] if queue == queues.MAIN else [],
                activities=world.activities(),
                workflow_runner=workflow_runner(),
            )
            await closing.enter_async_context(worker)
        world.started_at = await environment.get_current_time()
        started = time.perf_counter()
        handles = [await _begin(environment, world, f"job-{number}") for number in range(jobs)]
        for _ in range(ENGINE_HOURS):
            await environment.sleep(timedelta(hours=1))
        await environment.sleep(timedelta(minutes=30))
        await _settle(handles)
        hours = sum(posted // HOUR_S for posted in world.posted_s.values())
        return time.perf_counter() - started, hours


async def _begin(
    environment: WorkflowEnvironment, world: ClockedWorld, job_id: str
) -> WorkflowHandle[JobBilling, object]:
    run_id = f"{job_id}-0-1"
    world.machines["nod-1"].runs[run_id] = Run(RunState.RUNNING, 1)
    request = BillingRequest(
        job_id=job_id,
        account_id="acc-1",
        attempt=1,
        started_at=world.started_at,
        workers=(
            BilledWorker(worker=0, run_id=run_id, node=node_address(), started_at=world.started_at),
        ),
    )
    return await environment.client.start_workflow(
        JobBilling.run, request, id=f"job/{job_id}/billing", task_queue=queues.MAIN
    )


async def _settle(handles: Sequence[WorkflowHandle[JobBilling, object]]) -> None:
    for number, handle in enumerate(handles):
        done = BillingDone(job_id=f"job-{number}", attempt=1)
        await handle.signal(JobBilling.settled, done)
    for handle in handles:  # one after another: each of them takes the server's clock
        await handle.result()
