"""Waking the placement loop. A wake carries nothing, so that many of them are one."""

import asyncio
import threading

import structlog
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.temporal.client import client, client_loop, limited
from workflows.contracts import queues
from workflows.contracts.placement import PlacementRequest

WORKFLOW_ID = "placement"
PAUSE_S = 0.05

log = structlog.get_logger("wake")


class Waker:
    """At most one signal under way in this process, and a pause after each.

    What cannot be sent is not tried again: the loop looks by itself after half a minute.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False
        self._sending = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing is asked for that has not been sent."""
        with self._lock:
            return not self._sending

    def wake(self) -> None:
        """From any thread, at once and without waiting for anything."""
        loop = client_loop()
        if loop is None:
            return
        with self._lock:
            self._wanted = True
            if self._sending:
                return
            self._sending = True
        try:
            loop.call_soon_threadsafe(self._begin)
        except RuntimeError:  # the loop has ended meanwhile, the process with it
            self._sending = False

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._take():
            try:
                await limited(_signal(), "placement: wake")
            except (RPCError, ApplicationError) as cause:
                log.warning("placement was not woken", why=str(cause))
            await asyncio.sleep(PAUSE_S)

    def _take(self) -> bool:
        with self._lock:
            wanted, self._wanted = self._wanted, False
            self._sending = wanted
            return wanted


_waker = Waker()


def wake_placement() -> None:
    """Something waits for a place, or a place has become free. From any thread."""
    _waker.wake()


async def _signal() -> None:
    await client().start_workflow(
        "Placement",
        PlacementRequest(),
        id=WORKFLOW_ID,
        task_queue=queues.MAIN,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal="wake",
        static_summary="the one placement loop",
    )
