"""State snapshots of a job, which a later attempt starts with.

They are taken while the job runs on a machine that can be lost, and at the end of an attempt that
has a next one. A notebook or endpoint, which can start again, keeps all its files by them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

from temporalio import workflow

from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import JobRequest
from workflows.contracts.statuses import JobStatus
from workflows.effects.jobs import (
    DiscardSnapshots,
    RunFolder,
    SnapshotOutcome,
    SnapshotSaved,
    discard_snapshots,
)
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.violations import report_violation
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import cancel_and_wait, gather_all, wait_until
from workflows.rules.catalogue.providers import preemption_notices_s
from workflows.rules.counts import counted

LAST_SNAPSHOT_LIMIT = timedelta(minutes=10)
PREEMPTION_SNAPSHOT_LIMIT = timedelta(seconds=preemption_notices_s()[0] - 10)
"""Before the notice of a preemption is over."""
OWN_INTERVAL = timedelta(hours=1)
"""Between two snapshots of a service on a machine that is there to stay."""
TIME_SHARE = 20
"""How many times as long as a snapshot takes the next one is waited for, at least."""


class StateSnapshots:
    """The state snapshots of one job.

    A failed snapshot does not affect the job: one event is recorded, and the next interval tries
    again.

    outages: nodes without a connection, whose state is not saved; record_event: writes an event;
    has_copies: whether the object store may hold snapshots.
    """

    def __init__(
        self,
        request: JobRequest,
        outages: NodeOutages,
        record_event: Callable[[Event], Awaitable[object]],
    ) -> None:
        self._job_id = request.job_id
        self._is_service = request.type.is_service
        self._folders = tuple(RunFolder) if self._is_service else (RunFolder.STATE,)
        self._interval = timedelta(seconds=request.state_interval_s)
        self._outages = outages
        self._record_event = record_event
        self.has_copies = request.resumed_from is not None and request.resumed_from.has_copies
        progress = request.resumed_from
        self.snapshot_bytes = dict(progress.snapshot_bytes) if progress else {}
        """The size of the stored snapshot of each worker, as far as it is known."""
        self._saving: asyncio.Task[None] | None = None
        self._is_recorded = False
        """Whether the event of the first snapshot is recorded; the others have no event."""
        self._failing: set[int] = set()
        """Workers whose last snapshot failed, for which an event is recorded."""

    def stored_bytes(self, status: JobStatus) -> int | None:
        """The size of the stored snapshots of a job of this status; None: it is not known.

        They are removed when the job has ended.
        """
        if status.is_final and self.has_copies:
            return 0
        return sum(self.snapshot_bytes.values()) if self.snapshot_bytes else None

    def applies_to(self, workers: Sequence[Worker]) -> bool:
        """Whether the job can start again, or must when a machine of this attempt is lost."""
        return self._interval > timedelta(0) and (
            self._is_service or any(worker.assigned.can_be_lost for worker in workers)
        )

    @property
    def _what(self) -> str:
        return "its work folder with output and state" if self._is_service else "its state"

    # ── while it runs ───────────────────────────────────────────────────────────────────────

    def start(self, workers: Sequence[Worker]) -> None:
        """Start taking snapshots at the interval; a second call does nothing."""
        if self._saving is None and self.applies_to(workers):
            saved = [one for one in workers if self._is_repeated(one)]
            self._saving = asyncio.create_task(
                gather_all(self._save_repeatedly(worker) for worker in saved)
            )

    def stop(self) -> None:
        """Stop taking snapshots, and cancel a running one without waiting."""
        if self._saving is not None:
            self._saving.cancel()

    async def wait_stopped(self) -> None:
        """Stop taking snapshots, and wait until none is running."""
        if self._saving is not None:
            await cancel_and_wait([self._saving])
        self._saving = None
        self._failing.clear()

    async def _save_repeatedly(self, worker: Worker) -> None:
        pause = self._interval  # What is too large to be saved is said soon.
        while not worker.has_ended:
            await wait_until(lambda: worker.has_ended, pause, "until the next snapshot")
            if not worker.has_ended and not self._outages.unreachable(worker):
                began = workflow.now()
                await self._save(worker)
                pause = max(self._pause(worker), (workflow.now() - began) * TIME_SHARE)

    def _is_repeated(self, worker: Worker) -> bool:
        """Whether snapshots of the worker are taken while it runs, and not at its end alone."""
        return self._is_service or worker.assigned.can_be_lost

    def _pause(self, worker: Worker) -> timedelta:
        """Between two snapshots of a worker."""
        return self._interval if worker.assigned.can_be_lost else OWN_INTERVAL

    async def _save(self, worker: Worker, *, is_last: bool = False) -> None:
        self.has_copies = True
        try:
            saved = await self._taken(worker, is_last=is_last)
        except EFFECT_FAILED as failure:
            await report_violation(worker.node, failure)
            await self._record_failure(worker, cause_of(failure)[1])
            return
        if saved.outcome is SnapshotOutcome.TOO_LARGE:
            await self._record_failure(worker, _too_large(saved))
            return
        if saved.stored_bytes is not None:
            self.snapshot_bytes[worker.index] = saved.stored_bytes
        self._failing.discard(worker.index)
        if saved.outcome is SnapshotOutcome.SAVED and not self._is_recorded:
            self._is_recorded = True
            when = f"every {self._pause(worker).total_seconds():g} s when it has changed"
            if not self._is_repeated(worker):
                when = "for the next attempt"
            message = f"{self._what} is saved {when}"
            await self._record_event(Event(type=JobEvent.STATE_SAVED, message=message))

    async def _taken(self, worker: Worker, *, is_last: bool) -> SnapshotSaved:
        """A snapshot; the last one is also waited for through an outage of the worker's node."""
        if not is_last:
            return await worker.save_snapshot(self._folders)
        save = partial(worker.save_snapshot, self._folders, is_last=True)
        return await self._outages.run_through(worker, save)

    async def _record_failure(self, worker: Worker, why: str) -> None:
        if worker.index not in self._failing:
            self._failing.add(worker.index)
            message = f"worker {worker.index}: {self._what} was not saved: {why}"
            await self._record_event(Event(type=JobEvent.STATE_NOT_SAVED, message=message))

    # ── at the end of an attempt ────────────────────────────────────────────────────────────

    async def save_last(self, workers: Sequence[Worker], limit: timedelta) -> None:
        """Take a last snapshot of the workers on nodes that can be reached, within the limit.

        What fails is tried again: no interval follows, and the files go from the nodes.
        """
        there = [w for w in workers if w.has_run and not self._outages.abandoned(w)]
        if not self._interval or not there:
            return
        waiting = set(there)

        async def save(worker: Worker) -> None:
            await self._save(worker, is_last=True)
            waiting.remove(worker)

        try:
            await asyncio.wait_for(gather_all(map(save, there)), limit.total_seconds())
        except TimeoutError:
            for worker in [one for one in there if one in waiting]:
                await self._record_failure(worker, f"not within {limit.total_seconds():g} s")

    # ── in the next attempt ─────────────────────────────────────────────────────────────────

    def restored_events(self, workers: Sequence[Worker]) -> list[Event]:
        """The events of the state that the workers start with; empty in the first attempt."""
        if not self.has_copies:
            return []
        return [_restored_event(worker) for worker in workers]

    async def discard(self) -> None:
        """Remove all snapshots of the job, which has ended."""
        if self.has_copies:
            await self.wait_stopped()
            await discard_snapshots(DiscardSnapshots(job_id=self._job_id))


def _restored_event(worker: Worker) -> Event:
    staged = worker.staged
    if staged.state_saved_at is not None:
        found = f"its state of {staged.state_saved_at:%Y-%m-%d %H:%M:%S} UTC is restored"
    elif staged.state_refused is not None:
        found = f"starts from the beginning: its state cannot be restored: {staged.state_refused}"
    else:
        found = "starts from the beginning: it has no saved state"
    saved_at = staged.state_saved_at.isoformat() if staged.state_saved_at else None
    return Event(
        type=JobEvent.STATE_RESTORED,
        message=f"worker {worker.index}: {found}",
        details={"worker": worker.index, "saved_at": saved_at},
    )


def _too_large(saved: SnapshotSaved) -> str:
    size = f"{saved.state_bytes / 1e9:.1f} GB in {counted(saved.file_count, 'file')}"
    return f"it has {size}, at most {saved.limit} are saved"
