"""What a job keeps of where it is: copied off machines that can be lost, found where it goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import JobRequest
from workflows.effects.jobs import (
    DiscardSnapshots,
    SnapshotOutcome,
    SnapshotSaved,
    discard_snapshots,
)
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import cancel_and_wait, gather_all, wait_until
from workflows.rules.catalogue.providers import preemption_notices_s

LAST_SNAPSHOT_LIMIT = timedelta(minutes=10)
PREEMPTION_SNAPSHOT_LIMIT = timedelta(seconds=preemption_notices_s()[0] - 10)
"""Before the notice of a preemption is over."""


class StateSnapshots:
    """No failure of a copy does anything to the job: it is told once, and tried again.

    has_copies: some may be in the store. tell: records an event.
    """

    def __init__(
        self,
        request: JobRequest,
        lost: NodeOutages,
        tell: Callable[[Event], Awaitable[None]],
    ) -> None:
        self._job_id = request.job_id
        self._interval = timedelta(seconds=request.state_interval_s)
        self._outages = lost
        self._tell = tell
        self.has_copies = request.resumed_from is not None and request.resumed_from.has_copies
        self._copying: asyncio.Task[None] | None = None
        self._is_told = False
        """Of the first copy; nobody is told of each."""
        self._amiss: set[int] = set()
        """Workers without their last copy, for a reason that was told."""

    def applies_to(self, workers: Sequence[Worker]) -> bool:
        """Some machine of this attempt can be lost, and then all of its workers begin again."""
        return self._interval > timedelta(0) and any(
            worker.assigned.can_be_lost for worker in workers
        )

    # ── while it runs ───────────────────────────────────────────────────────────────────────

    def begin(self, workers: Sequence[Worker]) -> None:
        """Copy at the interval from now on, beside whatever else is done; once is enough."""
        if self._copying is None and self.applies_to(workers):
            leased = [worker for worker in workers if worker.assigned.can_be_lost]
            self._copying = asyncio.create_task(gather_all(self._keep(worker) for worker in leased))

    def stop(self) -> None:
        """Copy no more; a copy that is under way is given up."""
        if self._copying is not None:
            self._copying.cancel()

    async def stopped(self) -> None:
        """As `leave`, and none is under way any more."""
        if self._copying is not None:
            await cancel_and_wait([self._copying])
        self._copying = None
        self._amiss.clear()

    async def _keep(self, worker: Worker) -> None:
        while not worker.has_ended:
            await wait_until(lambda: worker.has_ended, self._interval, "until its state is copied")
            if not worker.has_ended and not self._outages.is_away(worker):
                await self._copy(worker)

    async def _copy(self, worker: Worker) -> None:
        self.has_copies = True
        try:
            saved = await worker.save_snapshot()
        except EFFECT_FAILED as failure:
            await self._tell_amiss(worker, cause_of(failure)[1])
            return
        if saved.outcome is SnapshotOutcome.TOO_LARGE:
            await self._tell_amiss(worker, _too_large(saved))
            return
        self._amiss.discard(worker.index)
        if saved.outcome is SnapshotOutcome.SAVED and not self._is_told:
            self._is_told = True
            every = f"every {self._interval.total_seconds():g} s"
            message = f"its state is copied off its machines, {every} where it has changed"
            await self._tell(Event(type=JobEvent.STATE_SAVED, message=message))

    async def _tell_amiss(self, worker: Worker, why: str) -> None:
        if worker.index not in self._amiss:
            self._amiss.add(worker.index)
            message = f"worker {worker.index}: its state was not copied: {why}"
            await self._tell(Event(type=JobEvent.STATE_NOT_SAVED, message=message))

    # ── when its machines are left ──────────────────────────────────────────────────────────

    async def save_last(self, workers: Sequence[Worker], limit: timedelta) -> None:
        """What it has kept since the last copy, of workers whose nodes still answer."""
        there = [w for w in workers if w.has_run and not self._outages.abandoned(w)]
        if not self._interval or not there:
            return
        copies = gather_all(self._copy(worker) for worker in there)
        try:
            await asyncio.wait_for(copies, limit.total_seconds())
        except TimeoutError:
            return

    # ── where it goes on ────────────────────────────────────────────────────────────────────

    def found(self, workers: Sequence[Worker]) -> list[Event]:
        """What is told of the state that the workers begin with; nothing, the first time."""
        if not self.has_copies:
            return []
        return [_found(worker) for worker in workers]

    async def discard(self) -> None:
        """The job has ended: nothing of its state stays in the store."""
        if self.has_copies:
            await self.stopped()
            await discard_snapshots(DiscardSnapshots(job_id=self._job_id))


def _found(worker: Worker) -> Event:
    staged = worker.staged
    if staged.state_saved_at is not None:
        said = f"its state of {staged.state_saved_at:%Y-%m-%d %H:%M:%S} UTC is restored"
    elif staged.state_refused is not None:
        said = f"starts from the beginning: its state cannot be restored: {staged.state_refused}"
    else:
        said = "starts from the beginning: no state of it was saved"
    saved_at = staged.state_saved_at.isoformat() if staged.state_saved_at else None
    return Event(
        type=JobEvent.STATE_RESTORED,
        message=f"worker {worker.index}: {said}",
        details={"worker": worker.index, "saved_at": saved_at},
    )


def _too_large(saved: SnapshotSaved) -> str:
    size = f"{saved.state_bytes / 1e9:.1f} GB in {saved.file_count} files"
    return f"it has {size}, at most {saved.limit} are copied"
