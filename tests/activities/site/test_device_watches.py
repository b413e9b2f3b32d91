"""Watches that a killed process has left: the next process asks for those that it does not have."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.site import device_watches, devices
from activities.site.device_watches import take_over_watches
from tests.activities.hostile_sites import BOOT, DEVICE_RUN, HostileSite
from tests.failure.hostile_node import Words, frame
from workflows.contracts import errors
from workflows.contracts.devices import DeviceRun, WatchLost
from workflows.effects.devices import WatchDevice

IDS = ("device/dev-1", "device/dev-2", "device/dev-3")


class Listing:
    """Temporal, as far as it lists the lifecycles of devices."""

    namespace = "default"

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.left_workers: list[str] = []
        self.workflow_service = self

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        self.queries.append(query)
        for each in IDS:
            yield SimpleNamespace(id=each)

    async def reset_sticky_task_queue(self, request: Any, **_: timedelta) -> None:
        assert request.namespace == self.namespace
        self.left_workers.append(request.execution.workflow_id)


@pytest.fixture
def signaled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, WatchLost]]:
    """The signals that were sent; the first one is lost."""
    sent: list[tuple[str, WatchLost]] = []
    failures = [ApplicationError("no answer")]

    async def tell(workflow_id: str, signal: str, argument: WatchLost) -> bool:
        assert signal == "watch_lost"
        if failures:
            raise failures.pop()
        sent.append((workflow_id, argument))
        return True

    monkeypatch.setattr(device_watches, "tell", tell)
    monkeypatch.setattr(device_watches, "SETTLED_S", 0.0)
    monkeypatch.setattr(device_watches, "PAUSE_S", 0.0)
    return sent


@pytest.mark.parametrize("queue", ["site", "site/reg-7"])
async def test_every_device_is_asked_for_that_this_process_does_not_watch(
    signaled: list[tuple[str, WatchLost]], monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    monkeypatch.setitem(devices._watches, "dev-2", asyncio.Event())
    temporal: Any = Listing()
    await take_over_watches(temporal, queue)
    assert {who for who, _ in signaled} == {"device/dev-1", "device/dev-3"}
    assert all(lost.queue == f"{queue}/watches" for _, lost in signaled)
    assert all(("RegionId = 'reg-7'" in each) == (queue != "site") for each in temporal.queries)


async def test_a_watch_that_does_not_come_is_asked_for_again(
    signaled: list[tuple[str, WatchLost]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(workflow_id: str, signal: str, argument: WatchLost) -> bool:
        signaled.append((workflow_id, argument))
        if workflow_id != IDS[0] or signaled.count((workflow_id, argument)) > 1:
            monkeypatch.setitem(devices._watches, workflow_id.partition("/")[2], asyncio.Event())
        return True

    monkeypatch.setattr(device_watches, "tell", tell)
    temporal: Any = Listing()
    await take_over_watches(temporal, "site")
    times = [[who for who, _ in signaled].count(each) for each in IDS]
    assert times == [2, 1, 1]


async def test_a_lifecycle_waits_for_no_dead_worker_where_its_own_process_was_killed(
    signaled: list[tuple[str, WatchLost]],
) -> None:
    shared: Any = Listing()
    await take_over_watches(shared, "site")
    assert set(shared.left_workers) == {who for who, _ in signaled} == set(IDS)
    signaled.clear()
    of_region: Any = Listing()
    await take_over_watches(of_region, "site/reg-7")
    assert {who for who, _ in signaled} == set(IDS)
    assert of_region.left_workers == []


async def test_a_second_watch_of_a_device_ends_the_first(hostile: HostileSite) -> None:
    run = frame(kind="device", run=DEVICE_RUN, boot_id=BOOT)
    hostile.machine.says["watch_device"] = Words(run, stays=True)
    known = DeviceRun.model_validate(DEVICE_RUN)
    command = WatchDevice(node=hostile.node, known=known)
    first = asyncio.create_task(hostile.perform(devices.watch_device, command))
    while hostile.node.node_id not in devices.watched_devices():
        assert not first.done()
        await asyncio.sleep(0)
    second = asyncio.create_task(hostile.perform(devices.watch_device, command))
    with pytest.raises(ApplicationError, match="another watch") as ended:
        await asyncio.wait_for(first, 20)
    assert (ended.value.type, ended.value.non_retryable) == (errors.WORKER_STOPS, True)
    assert not second.done()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert hostile.node.node_id not in devices.watched_devices()


async def test_a_watch_begins_at_once_after_each_stop_of_its_worker_process(
    hostile: HostileSite,
) -> None:
    run = frame(kind="device", run=DEVICE_RUN, boot_id=BOOT)
    hostile.machine.says["watch_device"] = Words(run, stays=True)
    known = DeviceRun.model_validate(DEVICE_RUN)
    environment = ActivityEnvironment()
    command = WatchDevice(node=hostile.node, known=known)
    watch = asyncio.create_task(environment.run(devices.watch_device, command))
    while hostile.node.node_id not in devices.watched_devices():
        assert not watch.done()
        await asyncio.sleep(0)
    environment.worker_shutdown()
    with pytest.raises(ApplicationError) as ended:
        await asyncio.wait_for(watch, 20)
    assert (ended.value.type, ended.value.non_retryable) == (errors.WORKER_STOPS, False)
    assert ended.value.next_retry_delay == timedelta(seconds=1)
