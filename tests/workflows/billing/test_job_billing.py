"""The bill of a running job, over hours that are skipped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest_asyncio
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.waiting import eventually
from tests.workflows.fake_world import Run, World, node_address
from tests.workflows.time_skipping import skipping_clock
from workers.registry import WORKFLOWS, workflow_runner
from workflows.billing.job_billing import JobBilling
from workflows.contracts import errors, queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import BilledWorker, BillingRequest
from workflows.contracts.jobs import EndRequest, RunReport
from workflows.contracts.statuses import RunState
from workflows.effects.billing import BillingDone, TellJobToEnd
from workflows.effects.jobs import GetRunStatus

RUN_ID = "job-a-0-1"
OUT_OF_CREDITS = "insufficient-credits"


class ClockedWorld(World):
    """A world whose one command runs by the skipped clock."""

    environment: WorkflowEnvironment
    started_at: datetime
    ends: list[EndRequest]
    """What its job was told to end for; the job goes on all the same."""

    async def get_run_status(self, asked: GetRunStatus) -> RunReport:  # type: ignore[override]
        self.machine(asked.node)
        now = await self.environment.get_current_time()
        elapsed_s = (now - self.started_at).total_seconds()
        return RunReport(run_id=asked.run_id, state=RunState.RUNNING, elapsed_s=elapsed_s)

    async def tell_job_to_end(self, asked: TellJobToEnd) -> Done:
        assert asked.job_id == "job-a"
        self.ends.append(asked.request)
        return Done()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def clock() -> AsyncIterator[WorkflowEnvironment]:
    """A server whose clock skips ahead while workflows wait."""
    async with skipping_clock() as environment:
        yield environment


@asynccontextmanager
async def billing(
    environment: WorkflowEnvironment,
) -> AsyncIterator[tuple[WorkflowEnvironment, ClockedWorld, BillingRequest]]:
    world = ClockedWorld()
    world.environment, world.ends = environment, []
    world.started_at = await environment.get_current_time()
    world.machines["nod-1"].runs[RUN_ID] = Run(RunState.RUNNING, 1)
    request = BillingRequest(
        job_id="job-a",
        account_id="acc-1",
        attempt=1,
        started_at=world.started_at,
        workers=(
            BilledWorker(worker=0, run_id=RUN_ID, node=node_address(), started_at=world.started_at),
        ),
    )
    async with (
        _worker(environment.client, queues.MAIN, world),
        _worker(environment.client, queues.SITE, world),
    ):
        yield environment, world, request


def _worker(client: Client, queue: str, world: World) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=WORKFLOWS if queue == queues.MAIN else [],
        activities=world.activities(),
        workflow_runner=workflow_runner(),
    )


async def test_every_hour_of_ten_days_is_posted(clock: WorkflowEnvironment) -> None:
    async with billing(clock) as (environment, world, request):
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        for _ in range(10):  # One call to the server may take 30 s and no longer.
            await environment.sleep(timedelta(hours=24))
        await environment.sleep(timedelta(minutes=1))
        posted_s = world.posted_s["job-a", 0, 1]
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        report = await handle.result()

    assert 240 * 3600 <= posted_s <= 240 * 3600 + 60
    assert report.posted_microcredits == posted_s


async def test_hours_in_which_the_node_was_lost_are_posted_when_it_is_back(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(hours=1, minutes=1))
        first = world.posted_s["job-a", 0, 1]
        world.machines["nod-1"].reachable = False
        await environment.sleep(timedelta(hours=3))
        assert world.posted_s["job-a", 0, 1] == first, "what nobody saw is not guessed"

        world.machines["nod-1"].reachable = True
        await environment.sleep(timedelta(hours=1, minutes=10))
        assert world.posted_s["job-a", 0, 1] >= 5 * 3600
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_what_is_said_of_an_earlier_attempt_neither_ends_nor_moves_its_bill(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        second = request.model_copy(update={"attempt": 2})
        handle = await environment.client.start_workflow(
            JobBilling.run, second, id="job/job-a/billing", task_queue=queues.MAIN
        )
        elsewhere = request.workers[0].model_copy(update={"node": node_address("nod-9")})
        earlier = request.model_copy(update={"attempt": 1, "workers": (elsewhere,)})
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.signal(JobBilling.nodes_moved, earlier)
        await environment.sleep(timedelta(hours=2, minutes=1))
        assert world.posted_s["job-a", 0, 2] >= 2 * 3600
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=2))
        await handle.result()


async def test_nodes_are_metered_together(clock: WorkflowEnvironment) -> None:
    both_are_asked, met = asyncio.Barrier(2), 0

    async def meet(_: Contract) -> None:
        nonlocal met
        await asyncio.wait_for(both_are_asked.wait(), 10)
        met += 1

    async with billing(clock) as (environment, world, request):
        world.faults["get_run_status"] += [meet, meet]
        second = request.workers[0].model_copy(update={"worker": 1, "run_id": "job-a-1-1"})
        of_both = request.model_copy(update={"workers": (*request.workers, second)})
        handle = await environment.client.start_workflow(
            JobBilling.run, of_both, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(hours=1, minutes=1))
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()
    assert met == 2


async def test_a_node_that_has_moved_is_metered_where_it_is(clock: WorkflowEnvironment) -> None:
    async with billing(clock) as (environment, world, request):
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        world.machines["nod-1"].host = "10.0.0.99"
        there = request.workers[0].node.model_copy(update={"host": "10.0.0.99"})
        moved = request.workers[0].model_copy(update={"node": there})
        await handle.signal(
            JobBilling.nodes_moved, request.model_copy(update={"workers": (moved,)})
        )
        await environment.sleep(timedelta(hours=1, minutes=1))
        assert world.posted_s["job-a", 0, 1] >= 3600
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_news_of_the_attempt_before_changes_nothing_of_the_bill_of_this_one(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        second = request.model_copy(update={"attempt": 2})
        handle = await environment.client.start_workflow(
            JobBilling.run, second, id="job/job-a/billing", task_queue=queues.MAIN
        )
        gone = request.workers[0].node.model_copy(update={"host": "10.0.0.99"})
        moved = request.workers[0].model_copy(update={"node": gone})
        await handle.signal(
            JobBilling.nodes_moved, request.model_copy(update={"workers": (moved,)})
        )
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await environment.sleep(timedelta(hours=1, minutes=1))
        assert world.posted_s["job-a", 0, 2] >= 3600
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=2))
        assert (await handle.result()).posted_microcredits >= 3600


async def test_a_balance_that_runs_out_within_the_hour_ends_the_job_then(
    clock: WorkflowEnvironment,
) -> None:
    async def fail(_: Contract) -> None:
        raise ApplicationError("the reply was lost", type=errors.OUTCOME_UNKNOWN)

    async with billing(clock) as (environment, world, request):
        world.faults["tell_job_to_end"].append(fail)
        world.balance_microcredits = 600
        world.burn_microcredits_per_hour = 3600
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(minutes=12))
        await eventually(lambda: len(world.ends) > 0, "the job is told, though a reply was lost")
        assert world.ends[0].code == OUT_OF_CREDITS
        assert world.balance_microcredits <= 0
        assert world.posted_s["job-a", 0, 1] < 3600
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_a_job_that_takes_long_to_end_is_told_now_and_then_and_not_all_the_time(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        world.balance_microcredits = 600
        world.burn_microcredits_per_hour = 3600
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(minutes=41))
        assert 2 <= len(world.ends) <= 8
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_a_job_is_ended_when_others_have_used_up_the_credits_before_its_own_hour(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        world.burn_microcredits_per_hour = 1
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(minutes=6))
        assert world.posted_s["job-a", 0, 1] == 0
        world.balance_microcredits, world.burn_microcredits_per_hour = 0, 3600
        await handle.signal(JobBilling.recheck_balance)
        await eventually(lambda: len(world.ends) > 0, "the job is told at once")
        assert [one.code for one in world.ends] == [OUT_OF_CREDITS]
        assert 360 <= world.posted_s["job-a", 0, 1] < 3600, "it is metered before it is told"
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_a_bill_that_looks_again_moves_its_next_look_to_when_the_credits_end(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(minutes=1))
        world.balance_microcredits, world.burn_microcredits_per_hour = 600, 3600
        await handle.signal(JobBilling.recheck_balance)
        await environment.sleep(timedelta(minutes=5))
        assert world.posted_s["job-a", 0, 1] == 0, "there are credits for five more minutes"
        await environment.sleep(timedelta(minutes=10))
        await eventually(lambda: len(world.ends) > 0, "the job is told when they must be used up")
        assert world.ends[0].code == OUT_OF_CREDITS
        assert world.balance_microcredits <= 0
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_a_job_that_costs_nothing_runs_on_when_others_have_used_up_the_credits(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        world.free_jobs.add("job-a")
        world.balance_microcredits, world.burn_microcredits_per_hour = 0, 3600
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await handle.signal(JobBilling.recheck_balance)
        await environment.sleep(timedelta(hours=2, minutes=1))
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()
        assert world.posted_s["job-a", 0, 1] >= 7200
        assert world.ends == []


async def test_a_bill_that_was_begun_after_its_job_had_ended_ends_by_itself(
    clock: WorkflowEnvironment,
) -> None:
    async with billing(clock) as (environment, world, request):
        world.ended_jobs.add("job-a")
        report = await environment.client.execute_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        assert report.posted_microcredits == 0


async def test_a_newer_job_ends_before_the_credits_are_used_up(clock: WorkflowEnvironment) -> None:
    async with billing(clock) as (environment, world, request):
        world.balance_microcredits, world.burn_microcredits_per_hour = 1200, 3600
        world.ends_early_s = 300
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(minutes=14))
        assert world.ends == []
        await environment.sleep(timedelta(minutes=2))
        await eventually(lambda: len(world.ends) > 0, "the job is told five minutes before")
        assert "nearly used up, and newer jobs end first" in world.ends[0].reason
        assert 250 <= world.balance_microcredits <= 301
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_a_newer_job_runs_on_after_a_top_up(clock: WorkflowEnvironment) -> None:
    async with billing(clock) as (environment, world, request):
        world.balance_microcredits, world.burn_microcredits_per_hour = 1200, 3600
        world.ends_early_s = 300
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(minutes=14))
        world.balance_microcredits += 10**9
        await environment.sleep(timedelta(minutes=30))
        assert world.ends == []
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()


async def test_a_bill_wakes_when_the_runway_is_to_be_warned_of(clock: WorkflowEnvironment) -> None:
    async with billing(clock) as (environment, world, request):
        world.burn_microcredits_per_hour, world.to_warning_s = 3600, 600
        handle = await environment.client.start_workflow(
            JobBilling.run, request, id="job/job-a/billing", task_queue=queues.MAIN
        )
        await environment.sleep(timedelta(minutes=11))
        assert 600 <= world.posted_s["job-a", 0, 1] < 1200
        await handle.signal(JobBilling.settled, BillingDone(job_id="job-a", attempt=1))
        await handle.result()
