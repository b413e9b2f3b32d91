"""Device fees and payouts over days that are skipped: each day once, and none is left out."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, timedelta

import pytest
import pytest_asyncio
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from tests.waiting import eventually
from tests.workflows.fake_world import World
from tests.workflows.time_skipping import skipping_clock
from workers.registry import WORKFLOWS, workflow_runner
from workflows.billing.balance_guard import LONGEST_WAIT, BalanceGuard
from workflows.billing.device_fees import DeviceFees
from workflows.billing.payouts import Payouts
from workflows.contracts import queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.schedules import (
    BalanceGuardRequest,
    DeviceFeesRequest,
    PayoutsRequest,
)
from workflows.effects.billing import BalancesGuarded, GuardBalances, PaidOut, PayOut
from workflows.rules.billing.utc_days import DAY, last_closed_day, next_closing


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def clock() -> AsyncIterator[WorkflowEnvironment]:
    """A server whose clock skips ahead while workflows wait."""
    async with skipping_clock() as environment:
        yield environment


@asynccontextmanager
async def at_work(clock: WorkflowEnvironment, world: World) -> AsyncIterator[None]:
    async with Worker(
        clock.client,
        task_queue=queues.MAIN,
        workflows=WORKFLOWS,
        activities=world.activities(),
        workflow_runner=workflow_runner(),
    ):
        yield


@asynccontextmanager
async def ended(clock: WorkflowEnvironment, workflow_id: str) -> AsyncIterator[None]:
    """What is endless ends with its test."""
    try:
        yield
        await asleep(clock, workflow_id)
    finally:
        await clock.client.get_workflow_handle(workflow_id).terminate("the test has ended")


async def asleep(clock: WorkflowEnvironment, workflow_id: str) -> None:
    """It waits for the next day. The server skips no time after one that ended amidst an effect."""
    handle = clock.client.get_workflow_handle(workflow_id)

    async def waits() -> bool:
        events = (await handle.fetch_history()).events
        return events[-1].event_type == EventType.EVENT_TYPE_TIMER_STARTED

    await eventually(waits, f"{workflow_id} waits for the next day")


async def begin_fees(
    clock: WorkflowEnvironment, name: str, charged_through: date | None = None
) -> WorkflowHandle[DeviceFees, Done]:
    request = DeviceFeesRequest(charged_through=charged_through)
    return await clock.client.start_workflow(
        DeviceFees.run, request, id=f"fees-{name}", task_queue=queues.MAIN
    )


async def closed(clock: WorkflowEnvironment) -> date:
    return last_closed_day(await clock.get_current_time())


async def skip_a_day(clock: WorkflowEnvironment) -> None:
    """Until a minute after the next day is closed."""
    now = await clock.get_current_time()
    await clock.sleep(next_closing(now) - now + timedelta(minutes=1))


async def charged_until(world: World, first: date, last: date) -> None:
    wanted = Counter(first + number * DAY for number in range((last - first).days + 1))
    await eventually(lambda: world.device_days == wanted, f"the days until {last} are charged once")


async def test_each_day_is_charged_once_when_it_is_closed(clock: WorkflowEnvironment) -> None:
    world = World(client=clock.client)
    first = world.first_device_day = await closed(clock) - 40 * DAY
    async with at_work(clock, world):
        handle = await begin_fees(clock, "daily")
        async with ended(clock, handle.id):
            await charged_until(world, first, await closed(clock))
            for _ in range(3):
                await skip_a_day(clock)
                await charged_until(world, first, await closed(clock))
    assert len(world.device_days) == 41 + 3


async def test_the_days_without_a_worker_are_charged_when_one_is_back(
    clock: WorkflowEnvironment,
) -> None:
    world = World(client=clock.client)
    last = await closed(clock)
    world.first_device_day = last - 100 * DAY
    async with at_work(clock, world):
        handle = await begin_fees(clock, "away", charged_through=last - 7 * DAY)
        async with ended(clock, handle.id):
            await charged_until(world, last - 6 * DAY, last)
    assert len(world.device_days) == 7


async def test_a_charge_that_fails_is_tried_until_it_is_done(clock: WorkflowEnvironment) -> None:
    world = World(client=clock.client)
    first = world.first_device_day = await closed(clock)

    async def breaks(_: Contract) -> None:
        raise OSError("the database is away")

    world.faults["charge_device_days"] = [breaks, breaks]
    async with at_work(clock, world):
        handle = await begin_fees(clock, "broken")
        async with ended(clock, handle.id):
            await charged_until(world, first, first)
    assert world.device_days == {first: 1}


@pytest.mark.parametrize("is_started_anew", [False, True])
async def test_earnings_are_paid_out_once_in_a_day(
    clock: WorkflowEnvironment, *, is_started_anew: bool
) -> None:
    days: list[date] = []

    class Counting(World):
        def pay_out(self, asked: PayOut) -> PaidOut:
            days.append(asked.day)
            return super().pay_out(asked)

    world = Counting(client=clock.client)
    today = await closed(clock)
    world.unpaid.add("monday")
    async with at_work(clock, world):
        name = f"payouts-{is_started_anew}"
        handle = await clock.client.start_workflow(
            Payouts.run, PayoutsRequest(), id=name, task_queue=queues.MAIN
        )
        await eventually(lambda: world.paid == {"monday": 1}, "the first period is paid")
        world.unpaid.add("tuesday")
        if is_started_anew:
            await asleep(clock, name)
            await handle.terminate("in the UI")
            handle = await clock.client.start_workflow(
                Payouts.run, PayoutsRequest(), id=name, task_queue=queues.MAIN
            )
            await eventually(lambda: len(days) == 2, "it has asked again")
            assert world.unpaid == {"tuesday"}
        async with ended(clock, name):
            await skip_a_day(clock)
            await eventually(lambda: not world.unpaid, "the next period is paid")
    assert world.paid == {"monday": 1, "tuesday": 1}
    assert sorted(set(days)) == [today, today + DAY]


@pytest.mark.parametrize(
    ("next_s", "wait_s"),
    [
        pytest.param(None, 300, id="no warning is ahead"),
        pytest.param(100_000, 300, id="far ahead"),
        pytest.param(120, 120, id="due soon"),
        pytest.param(0, 10, id="due at once"),
    ],
)
async def test_the_guard_looks_when_a_warning_is_due_and_every_five_minutes(
    clock: WorkflowEnvironment, next_s: int | None, wait_s: int
) -> None:
    looks: list[float] = []

    class Timed(World):
        def guard_balances(self, asked: GuardBalances) -> BalancesGuarded:
            looks.append(len(looks))
            return super().guard_balances(asked)

    world = Timed(client=clock.client)
    world.next_warning_s = next_s
    name = f"guard-{next_s}"
    async with at_work(clock, world):
        handle = await clock.client.start_workflow(
            BalanceGuard.run, BalanceGuardRequest(), id=name, task_queue=queues.MAIN
        )
        async with ended(clock, name):
            await eventually(lambda: len(looks) == 1, "it looks at once")
            await asleep(clock, name)
            history = await handle.fetch_history()
            (timer,) = [
                event.timer_started_event_attributes.start_to_fire_timeout
                for event in history.events
                if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED
            ]
            assert timer.ToSeconds() == wait_s <= LONGEST_WAIT.total_seconds()
            world.short.add("acc-1")
            await clock.sleep(timedelta(seconds=wait_s + 1))
            await eventually(lambda: bool(world.warned), "it has looked again")
    assert world.warned == {"acc-1": 1}
