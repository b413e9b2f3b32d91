"""Waking placement: many wakes from many threads are few signals, and the last one counts."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client

from activities.temporal import set_client
from activities.wake import WORKFLOW_ID, wake_placement
from tests.activities.test_requests import signals_of
from tests.activities.waiting import PAUSE_S

WAKES = 2000


@pytest.fixture
async def client(temporal_server: Client) -> AsyncIterator[Client]:
    set_client(temporal_server)
    yield temporal_server
    await temporal_server.get_workflow_handle(WORKFLOW_ID).terminate()


async def count_signals(client: Client, at_least: int) -> int:
    async with asyncio.timeout(15):
        while True:
            try:
                count = len(await signals_of(client, WORKFLOW_ID))
            except Exception:  # noqa: BLE001 - it has not been started yet
                count = 0
            if count >= at_least:
                return count
            await asyncio.sleep(PAUSE_S)


async def test_many_wakes_are_few_signals_and_one_after_them_is_heard(client: Client) -> None:
    threads = [
        threading.Thread(target=lambda: [wake_placement() for _ in range(WAKES // 4)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    few = await count_signals(client, at_least=1)
    assert few < WAKES / 20
    settled = await count_signals(client, at_least=few)
    wake_placement()
    assert await count_signals(client, at_least=settled + 1) > settled
