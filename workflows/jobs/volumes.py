"""The volumes that a job writes to: what it has written is stored while it runs, and at its end.

What is stored becomes the content of the volume in one step, or not at all. A run whose machine is
lost leaves the content that was recorded last, which an event says.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import JOB_ENDED
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import JobRequest
from workflows.effects.volumes import (
    RecordVolume,
    StoreVolume,
    VolumeStored,
    record_volume,
    store_last_volume,
    store_volume,
)
from workflows.jobs.node_outages import NodeOutages
from workflows.jobs.violations import report_violation
from workflows.jobs.worker import Worker
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import cancel_and_wait, gather_all, wait_until
from workflows.rules.counts import counted, size_in_words

STAYING_INTERVAL = timedelta(hours=1)
"""Between two contents of a volume, on a machine that is there to stay."""
TIME_SHARE = 20
"""How many times as long as storing takes the next one is waited for, at least."""


class NotStoredError(Exception):
    """What a run has written to a volume is not stored; the message says why."""


class WrittenVolumes:
    """The volumes that one job writes to, by its only worker.

    outages: nodes without a connection, which store nothing; record_event: writes an event.
    """

    def __init__(
        self,
        request: JobRequest,
        outages: NodeOutages,
        record_event: Callable[[Event], Awaitable[object]],
    ) -> None:
        self._job_id = request.job_id
        self._ids = request.volumes
        self._interval = timedelta(seconds=request.state_interval_s) or STAYING_INTERVAL
        self._outages = outages
        self._record_event = record_event
        self._marks: dict[str, str] = {}
        """The fingerprint of what is stored of each volume, or of what the run began with."""
        self._stored_at: dict[str, datetime] = {}
        """When the content of each volume was stored that this attempt has recorded last."""
        self._storing: asyncio.Task[None] | None = None
        self._failing: set[str] = set()
        """Volumes whose last content could not be stored, for which an event is recorded."""

    def begin(self, workers: Sequence[Worker]) -> None:
        """Begin with what was staged for the workers of an attempt."""
        self._stored_at, self._marks = {}, {}
        self._failing.clear()
        for worker in workers:
            self._marks |= worker.staged.volume_marks

    def start(self, attempt: int, workers: Sequence[Worker]) -> None:
        """Start storing at the interval; a second call does nothing."""
        if self._ids and self._storing is None:
            self._storing = asyncio.create_task(
                gather_all(self._store_repeatedly(attempt, worker) for worker in workers)
            )

    def stop(self) -> None:
        """Stop storing, and cancel what is being stored without waiting."""
        if self._storing is not None:
            self._storing.cancel()

    async def wait_stopped(self) -> None:
        """Stop storing, and wait until nothing is being stored."""
        if self._storing is not None:
            await cancel_and_wait([self._storing])
        self._storing = None

    async def _store_repeatedly(self, attempt: int, worker: Worker) -> None:
        interval = self._interval if worker.assigned.can_be_lost else STAYING_INTERVAL
        pause = interval
        while not worker.has_ended:
            await wait_until(lambda: worker.has_ended, pause, "until volumes are stored")
            if not worker.has_ended and not self._outages.unreachable(worker):
                began = workflow.now()
                for volume_id in self._ids:
                    await self._try(attempt, worker, volume_id)
                pause = max(interval, (workflow.now() - began) * TIME_SHARE)

    async def _try(self, attempt: int, worker: Worker, volume_id: str) -> None:
        try:
            await self._store(attempt, worker, volume_id)
        except NotStoredError as failure:
            await self._record_failure(volume_id, str(failure))

    async def store_last(
        self, attempt: int, workers: Sequence[Worker], limit: timedelta
    ) -> ApplicationError | None:
        """Store what the runs have written to the end; the failure, where not all is stored."""
        began = [worker for worker in workers if worker.has_run] if self._ids else []
        failures = []
        for worker in began:
            for volume_id in self._ids:
                if self._outages.abandoned(worker):
                    failures.append(f"volume {volume_id}: the machine of the job is lost")
                    await self._record_failure(volume_id, "the machine of the job is lost")
                    continue
                try:
                    storing = self._store(attempt, worker, volume_id, is_last=True)
                    await asyncio.wait_for(storing, limit.total_seconds())
                except (NotStoredError, TimeoutError) as failure:
                    why = str(failure) or f"not within {limit.total_seconds():g} s"
                    failures.append(f"volume {volume_id}: {why}")
                    await self._record_failure(volume_id, why)
        return ApplicationError("; ".join(failures), type=JOB_ENDED) if failures else None

    async def _store(
        self, attempt: int, worker: Worker, volume_id: str, *, is_last: bool = False
    ) -> None:
        """Store and record what the run has written. Raises: NotStoredError."""
        at = workflow.now()
        command = StoreVolume(
            node=worker.node,
            run_id=worker.run,
            volume_id=volume_id,
            at=at,
            last_mark=self._marks.get(volume_id, ""),
        )
        try:
            stored = await self._taken(worker, command, is_last=is_last)
            if stored.place is None or stored.content is None:
                return
            recorded = await record_volume(
                RecordVolume(
                    volume_id=volume_id,
                    job_id=self._job_id,
                    attempt=attempt,
                    at=at,
                    place=stored.place,
                    content=stored.content,
                )
            )
        except EFFECT_FAILED as failure:
            await report_violation(worker.node, failure)
            raise NotStoredError(cause_of(failure)[1]) from failure
        if recorded.refusal is not None:
            raise NotStoredError(recorded.refusal)
        is_told = volume_id in self._stored_at and not is_last
        self._marks[volume_id], self._stored_at[volume_id] = stored.mark, at
        self._failing.discard(volume_id)
        if not is_told:
            files = counted(stored.content.file_count, "file")
            size = size_in_words(stored.content.unpacked_bytes)
            message = f"volume {volume_id}: what was written is its content now: {files}, {size}"
            details = {"volume_id": volume_id, "content_sha256": stored.content.sha256}
            await self._record_event(
                Event(type=JobEvent.VOLUME_STORED, message=message, details={**details})
            )

    async def _taken(self, worker: Worker, command: StoreVolume, *, is_last: bool) -> VolumeStored:
        """What is stored; the last time also after an outage of the worker's node."""
        if not is_last:
            return await store_volume(command)

        async def store() -> VolumeStored:  # At the address that the node has then.
            return await store_last_volume(command.model_copy(update={"node": worker.node}))

        return await self._outages.run_through(worker, partial(store))

    async def _record_failure(self, volume_id: str, why: str) -> None:
        if volume_id in self._failing:
            return
        self._failing.add(volume_id)
        stored_at = self._stored_at.get(volume_id)
        kept = f"the content of {stored_at:%Y-%m-%d %H:%M:%S} UTC" if stored_at else "its content"
        message = f"volume {volume_id}: keeps {kept}, without what was written since: {why}"
        await self._record_event(Event(type=JobEvent.VOLUME_NOT_STORED, message=message))
