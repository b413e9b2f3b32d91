"""What is given up ends, also where what it waited for comes in the same moment."""

import asyncio
import gc
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
import pytest_asyncio
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tests.waiting import eventually
from tests.workflows.giving_up import GivesUp, Work
from workers.registry import workflow_runner
from workflows.contracts import errors, queues
from workflows.effects.regions import CheckSite, SiteChecked

Handle = WorkflowHandle[GivesUp, str]
LIMIT_S = 30


@dataclass
class Site:
    """A site that answers when the test lets it, and the queue of the workflow that asks it."""

    client: Client
    name: str
    fails: bool = False
    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="check_site")
    async def answer(self, _: CheckSite) -> SiteChecked:
        self.is_asked.set()
        await self.may_answer.wait()
        if self.fails:
            raise ApplicationError("nobody is there", type=errors.REFUSED)
        return SiteChecked(platform_key_fingerprint="SHA256:platform")

    async def begin(self, work: Work) -> Handle:
        return await self.client.start_workflow(
            GivesUp.run, args=[work, self.name], id=f"gives-up/{self.name}", task_queue=self.name
        )

    def workflows(self, cached: int = 0) -> Worker:
        """Takes up every workflow from its history, with all that came meanwhile at once.

        cached: how many stay in memory instead.
        """
        return Worker(
            self.client,
            task_queue=self.name,
            workflows=[GivesUp],
            workflow_runner=workflow_runner(),
            max_cached_workflows=cached,
        )


@pytest_asyncio.fixture
async def site(temporal_server: Client) -> AsyncIterator[Site]:
    site = Site(temporal_server, f"site-{uuid.uuid4().hex}")
    serving = Worker(
        temporal_server,
        task_queue=queues.own_site(site.name),
        activities=[site.answer],
        graceful_shutdown_timeout=timedelta(0),
    )
    async with serving:
        yield site


async def has(handle: Handle, kind: "EventType.ValueType") -> bool:
    return kind in [event.event_type async for event in handle.fetch_history_events()]


async def end_of(site: Site, handle: Handle) -> str:
    try:
        async with site.workflows():
            return await asyncio.wait_for(handle.result(), LIMIT_S)
    except TimeoutError:
        await handle.terminate("the test has ended")
        raise


@pytest.mark.parametrize(
    ("work", "ended"),
    [
        ("effect", EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED),
        ("effect that fails", EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED),
    ],
)
async def test_work_that_is_given_up_as_its_effect_ends_has_ended(
    site: Site, work: Work, ended: "EventType.ValueType"
) -> None:
    site.fails = work == "effect that fails"
    async with site.workflows():
        handle = await site.begin(work)
        await asyncio.wait_for(site.is_asked.wait(), LIMIT_S)
    await handle.signal(GivesUp.give_up)
    site.may_answer.set()
    await eventually(lambda: has(handle, ended), "the effect has ended")
    assert await end_of(site, handle) == "given up"


async def test_an_effect_that_is_cancelled_and_awaited_by_nobody_leaves_no_error(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async with site.workflows(cached=1):
        handle = await site.begin("effect that nobody awaits")
        await asyncio.wait_for(site.is_asked.wait(), LIMIT_S)
        await handle.signal(GivesUp.news)
        asked = EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED
        await eventually(lambda: has(handle, asked), "the effect is cancelled")
        await handle.signal(GivesUp.news)
        assert await handle.query(GivesUp.is_waiting)
        gc.collect()
        assert "never retrieved" not in caplog.text
        await handle.signal(GivesUp.give_up)
        assert await asyncio.wait_for(handle.result(), LIMIT_S) == "given up"


async def test_work_that_is_given_up_as_its_news_come_has_ended(site: Site) -> None:
    async with site.workflows():
        handle = await site.begin("news")
        await eventually(lambda: has(handle, EventType.EVENT_TYPE_TIMER_STARTED), "it waits")
    await handle.signal(GivesUp.news)
    await handle.signal(GivesUp.give_up)
    assert await end_of(site, handle) == "given up"
