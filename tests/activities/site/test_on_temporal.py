"""A site's worker against a real Temporal server: signals arrive, cancelling and stopping end."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.worker import Worker

from activities.temporal import client as temporal
from tests.activities.site.test_watch import JOB, RUN, stored, watchers
from tests.activities.sites import Site
from tests.activities.waiting import wait_until
from tests.activities.watch_workflow import AskSite, AwaitExit, Holding, HoldWatch
from workers.backlogs import backlog_of
from workers.registry import workflow_runner
from workers.sites import site_worker, site_workers
from workflows.contracts import queues
from workflows.contracts.devices import DeviceRun
from workflows.contracts.nodes import NodeAddress, WatchEnded
from workflows.effects.devices import ClearDevice, WatchDevice, clear_device, watch_device
from workflows.effects.regions import CheckSite, SiteChecked


@contextlib.asynccontextmanager
async def serving(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """The site's own worker, and one for the workflows of this test."""
    monkeypatch.setattr(temporal, "_client", client)
    site = site_worker(client, queues.SITE)
    lives = Worker(
        client,
        task_queue="watch-tests",
        workflows=[HoldWatch, AwaitExit, AskSite],
        workflow_runner=workflow_runner(),
        max_cached_workflows=0,
    )
    async with lives, site:
        yield


async def test_an_exit_reaches_the_workflow_of_its_job_and_cancelling_ends_the_watch(
    site: Site, temporal_server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(temporal_server, monkeypatch):
        job = await temporal_server.start_workflow(
            AwaitExit.run, id=f"job/{JOB}", task_queue="watch-tests"
        )
        holder = await temporal_server.start_workflow(
            HoldWatch.run,
            Holding(node=site.node),
            id=f"node/{uuid.uuid4().hex}",
            task_queue="watch-tests",
        )
        await wait_until(lambda: watchers(site), "the watcher")
        site.agent.run(RUN, "echo last words; exit 3")
        told = await job.result(rpc_timeout=timedelta(seconds=30))
        assert (told.worker, told.attempt, told.exit.exit_code) == (0, 1, 3)
        assert stored(site) == b"last words\n"
        await holder.signal(HoldWatch.let_go)
        await wait_until(lambda: not watchers(site), "the end of the watch")
        assert await holder.result() == WatchEnded(reason="cancelled")


async def test_a_worker_that_stops_lets_go_of_its_watches_and_the_next_takes_them_up(
    site: Site, temporal_server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(serving(temporal_server, monkeypatch))
        holder = await temporal_server.start_workflow(
            HoldWatch.run,
            Holding(node=site.node),
            id=f"node/{uuid.uuid4().hex}",
            task_queue="watch-tests",
        )
        await wait_until(lambda: watchers(site), "the watcher")
        await asyncio.wait_for(stack.aclose(), 60)
    await wait_until(lambda: not watchers(site), "the end of the watcher")
    before = (await holder.describe()).history_length
    async with serving(temporal_server, monkeypatch):
        await wait_until(lambda: watchers(site), "the next watcher")
        assert (await holder.describe()).history_length == before  # its workflow was not asked
        await holder.signal(HoldWatch.let_go)
        assert await holder.result() == WatchEnded(reason="cancelled")


async def test_one_worker_serves_every_shared_region_and_none_with_a_worker_of_its_own(
    site: Site, temporal_server: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(region_id: str, *, own_worker: bool) -> WorkflowHandle[AskSite, SiteChecked]:
        return await temporal_server.start_workflow(
            AskSite.run,
            CheckSite(region_id=region_id, own_worker=own_worker),
            id=f"ask/{uuid.uuid4().hex}",
            task_queue="watch-tests",
        )

    async with serving(temporal_server, monkeypatch):
        own = await ask("reg-own", own_worker=True)
        shared = [await ask(f"reg-{number}", own_worker=False) for number in range(30)]
        await asyncio.wait_for(asyncio.gather(*(each.result() for each in shared)), 30)
        assert (await own.describe()).status is WorkflowExecutionStatus.RUNNING
        assert await backlog_of(temporal_server, queues.own_site("reg-own")) == 1
        assert await backlog_of(temporal_server, queues.SITE) == 0
        async with site_worker(temporal_server, queues.own_site("reg-own")):
            await asyncio.wait_for(own.result(), 30)


@pytest.mark.parametrize("own_worker", [False, True])
async def test_the_watches_of_devices_have_a_worker_and_slots_of_their_own(
    temporal_server: Client, own_worker: bool
) -> None:
    node = NodeAddress(
        node_id="dev-1", region_id="reg-1", host="10.0.0.2", port=22, user="root",
        minion_id="SHA256:a", own_worker=own_worker,
    )  # fmt: skip
    short = clear_device.queue_of(ClearDevice(node=node))
    watches = watch_device.queue_of(WatchDevice(node=node, known=DeviceRun()))
    assert short != watches
    assert [each.task_queue for each in site_workers(temporal_server, short)] == [short, watches]
