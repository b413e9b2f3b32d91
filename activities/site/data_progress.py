"""The progress of a run's data on their way: in heartbeats, and now and then a signal to its job.

A heartbeat is sent every few seconds anyway, and Temporal keeps the details of the last one alone:
so progress costs no row and no event until somebody reads it. The signals, of which the job makes
events, come at ever longer intervals, and none of a transfer that is over soon.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.temporal.client import tell
from activities.temporal.heartbeats import set_details
from workflows.contracts.jobs import DataProgress, parse_run_id
from workflows.contracts.nodes import NodeAddress

SAY_S = 2.0
RATE_NOTES = 6
"""The rate is that between the first and the last of so many notes: of the last ten seconds."""
FIRST_SIGNAL_S = 15.0
LONGEST_PAUSE_S = 600.0


class ProgressNotes:
    """The progress of what one run transfers.

    done: how many bytes have been transferred; total_bytes: of how many, None: not known.
    """

    def __init__(
        self,
        node: NodeAddress,
        run_id: str,
        done: Callable[[], int],
        total_bytes: int | None,
        *,
        is_output: bool = False,
    ) -> None:
        self._node_id, self._is_output = node.node_id, is_output
        self._job_id, self._worker, self._attempt = parse_run_id(run_id)
        self._done, self._total_bytes = done, total_bytes
        self._notes: deque[tuple[float, int]] = deque(maxlen=RATE_NOTES)
        self._notes.append((time.monotonic(), done()))

    def note(self) -> DataProgress:
        """Send the progress with the heartbeats from now on, and return it."""
        now, done = time.monotonic(), self._done()
        began, before = self._notes[0]
        self._notes.append((now, done))
        found = DataProgress(
            worker=self._worker,
            attempt=self._attempt,
            node_id=self._node_id,
            at=datetime.now(UTC),
            is_output=self._is_output,
            bytes_transferred=done,
            total_bytes=self._total_bytes,
            bytes_per_s=max(0, int((done - before) / max(now - began, 0.001))),
        )
        set_details(words_of(found), found.model_dump_json())
        return found

    async def keep_noting(self) -> None:
        """Note the progress until cancelled, and signal it to the job now and then."""
        pause_s = FIRST_SIGNAL_S
        next_s = time.monotonic() + pause_s
        while True:
            await asyncio.sleep(SAY_S)
            found = self.note()
            if time.monotonic() >= next_s and not self._is_output:
                await self._signal(found)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                next_s = time.monotonic() + pause_s

    async def _signal(self, found: DataProgress) -> None:
        try:
            await tell(f"job/{self._job_id}", "data_progress", found)
        except (RPCError, ApplicationError) as error:  # The next one says more.
            activity.logger.warning("%s: progress is not signalled: %s", self._job_id, error)


@contextlib.asynccontextmanager
async def noting(notes: ProgressNotes) -> AsyncGenerator[None]:
    """Note progress while the block runs."""
    task = asyncio.create_task(notes.keep_noting())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def words_of(found: DataProgress) -> str:
    """How much is transferred, how fast, and how long the rest takes at that rate."""
    what = "storing the output" if found.is_output else "sending data"
    total = "" if found.total_bytes is None else f" of {found.total_bytes >> 20}"
    rate = "" if found.bytes_per_s is None else f", {found.bytes_per_s / 1e6:.1f} MB/s"
    left = "" if found.left_s is None else f", {found.left_s} s left"
    return f"{what}: {found.bytes_transferred >> 20}{total} MiB{rate}{left}"
