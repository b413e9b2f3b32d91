"""Calls to the APIs of providers: in the threads of their task queue, each provider with a share.

A cloud may hang for minutes. So its calls have slots and threads of their own, by task queue, and
within a queue a provider may hold at most as many slots as are free: whatever one does, the next
finds some. An activity that finds none is handed back to Temporal at once, and comes again.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.temporal.heartbeats import heartbeating
from workflows.contracts.errors import NO_SLOT

CALLS_AT_ONCE = 128
"""The slots of one task queue in one process, and the threads, which are made when needed."""
HANDED_BACK_S = (2.0, 10.0)
"""The shortest and the longest time after which an activity without a slot comes again."""
WAITS_S = 3 * HANDED_BACK_S[1]
"""How long an activity that was handed back counts as waiting; it may come to another process."""

Found = TypeVar("Found")


class CallSlots:
    """The slots of one task queue for calls to providers, with their threads.

    It is used on one event loop.
    """

    def __init__(self, queue: str, count: int = CALLS_AT_ONCE) -> None:
        self.threads = ThreadPoolExecutor(count, thread_name_prefix=queue)
        self._queue = queue
        self._count = count
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, dict[str, float]] = {}
        """Until when the activities of a provider that were handed back count as waiting."""

    @contextmanager
    def slot(self, provider_id: str) -> Iterator[None]:
        """Hold one slot for a call to a provider.

        Raises: ApplicationError `NoSlot`, after which Temporal retries, when the provider holds as
        many slots as are free.
        """
        info = activity.info()
        name = f"{info.workflow_run_id}/{info.activity_id}"
        waiting = self._waiting.setdefault(provider_id, {})
        held = self._held[provider_id]
        if held >= self._count - self._held.total():
            waiting[name] = time.monotonic() + WAITS_S
            self._measure(provider_id)
            raise ApplicationError(
                f"{provider_id}: {held} calls to it are running, as many as slots are free on "
                f"{self._queue}",
                type=NO_SLOT,
                category=ApplicationErrorCategory.BENIGN,
                next_retry_delay=timedelta(
                    seconds=random.uniform(*HANDED_BACK_S)  # noqa: S311 - it spreads load
                ),
            )
        waiting.pop(name, None)
        self._held[provider_id] += 1
        self._measure(provider_id)
        try:
            yield
        finally:
            self._held[provider_id] -= 1
            self._measure(provider_id)
            if not self._held[provider_id] and not waiting:
                del self._held[provider_id], self._waiting[provider_id]

    def _measure(self, provider_id: str) -> None:
        """Show how many calls to a provider run, and how many wait for a slot."""
        waiting, now = self._waiting[provider_id], time.monotonic()
        for name in [name for name, until in waiting.items() if until < now]:
            del waiting[name]
        labels = {"queue": self._queue, "provider": provider_id}
        meter = activity.metric_meter().with_additional_attributes(labels)
        running = meter.create_gauge("baseload_provider_calls_running", "Calls to a provider.")
        running.set(self._held[provider_id])
        handed_back = meter.create_gauge(
            "baseload_provider_calls_waiting", "Activities that wait for a slot of a provider."
        )
        handed_back.set(len(waiting))


@lru_cache
def slots_of(queue: str) -> CallSlots:
    """The slots of one task queue in this process."""
    return CallSlots(queue)


async def call_provider(provider_id: str, call: Callable[[], Found]) -> Found:
    """The answer of a blocking call to a provider's API, with heartbeats while it takes.

    On cancellation it waits for the call to end: a machine that the call creates after we stopped
    waiting would escape its termination. A call that has not started is dropped.

    Raises: ApplicationError `NoSlot`; whatever the call raises.
    """
    slots = slots_of(activity.info().task_queue)
    async with heartbeating():
        with slots.slot(provider_id):
            work = slots.threads.submit(call)
            try:
                return await asyncio.shield(asyncio.wrap_future(work))
            except asyncio.CancelledError:
                if not work.cancel():
                    await asyncio.wait([asyncio.wrap_future(work)])
                raise
