"""Waking the placement loop; a wake has no content, so several wakes can be sent as one."""

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
    """The sender of wakes in one process: one signal at a time, with a pause after each.

    A wake that fails is not retried, because the placement loop plans after half a minute anyway.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = False
        self._sending = False
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all requested wakes have been sent."""
        with self._lock:
            return not self._sending

    def wake(self) -> None:
        """Request a wake, from any thread and without waiting."""
        loop = client_loop()
        if loop is None:
            return
        with self._lock:
            self._wanted = True
            if self._sending:
                return
            self._sending = True
        try:
            loop.call_soon_threadsafe(self._start)
        except RuntimeError:  # The loop has ended meanwhile, and the process with it.
            self._sending = False

    def _start(self) -> None:
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
    """Wake the placement loop, as a job waits or capacity is free; called from any thread."""
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
