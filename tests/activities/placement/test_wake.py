"""Waking placement: many wakes from many threads are few signals, and the last one counts."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from activities.placement.wake import WORKFLOW_ID, Waker
from activities.temporal.client import set_client
from tests.activities.outbox.test_relay import signals_of
from tests.activities.waiting import wait_until

WAKES = 2000
THREADS = 4


@pytest.fixture
async def client(temporal_server: Client) -> AsyncIterator[Client]:
    set_client(temporal_server)
    yield temporal_server
    await temporal_server.get_workflow_handle(WORKFLOW_ID).terminate()


async def sent(client: Client, waker: Waker) -> int:
    """How many signals there are once nothing is under way any more."""
    await wait_until(lambda: waker.is_idle, "all wakes are sent")
    return len(await signals_of(client, WORKFLOW_ID))


def wake_often(waker: Waker) -> None:
    for _ in range(WAKES // THREADS):
        waker.wake()


async def test_many_wakes_are_few_signals_and_one_after_them_is_heard(client: Client) -> None:
    waker = Waker()
    threads = [threading.Thread(target=wake_often, args=(waker,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    few = await sent(client, waker)
    assert 1 <= few < WAKES / 20
    waker.wake()
    assert await sent(client, waker) == few + 1
