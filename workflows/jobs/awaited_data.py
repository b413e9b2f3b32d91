"""The wait of a job for the content of its artifacts, which are still being transferred."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts.errors import REFUSED
from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import JobRequest
from workflows.contracts.statuses import JobStatus
from workflows.effects.job_data import FindJobData, find_job_data
from workflows.jobs.observations import StepWriter
from workflows.primitives.journal import Journal
from workflows.primitives.waiting import wait_until

AWAITS = "jobs-await-their-data"
LOOK_INTERVAL = timedelta(minutes=10)
Interruptible = Callable[[Coroutine[Any, Any, bool]], Coroutine[Any, Any, bool]]
"""Awaits work until the job is asked to end."""


class AwaitedData:
    """The artifacts that a job waits for before it asks for resources; waiting costs nothing."""

    def __init__(self, request: JobRequest, journal: Journal, write: StepWriter) -> None:
        self._job_id = request.job_id
        self._is_there = not request.awaits_data
        self._has_changed = False
        self._journal, self._write = journal, write

    def change(self) -> None:
        """One of them has been transferred, or has failed."""
        self._has_changed = True

    async def wait(self, interruptible: Interruptible) -> None:
        """Wait until all are stored; most jobs have nothing to wait for.

        Raises: ApplicationError, when one of them will not be there; what `interruptible` raises.
        """
        if self._is_there or not workflow.patched(AWAITS):
            return
        while not self._is_there and await interruptible(self._is_missing()):
            await self._journal.continue_when_long()
            changed = wait_until(
                lambda: self._has_changed, LOOK_INTERVAL, "its data are transferred"
            )
            await interruptible(changed)  # The signal may have been lost.

    async def _is_missing(self) -> bool:
        """Whether one of them is still being transferred, which the job's row then says."""
        self._has_changed = False
        found = await find_job_data(FindJobData(job_id=self._job_id))
        await self._journal.stop_if_behind(found.sequence)
        if found.failure:
            raise ApplicationError(found.failure, type=REFUSED, non_retryable=True)
        self._is_there = not found.waits_for
        if found.waits_for and found.waits_for != self._journal.reason:
            waits = Event(type=JobEvent.AWAITS_DATA, message=found.waits_for)
            await self._write(waits, JobStatus.NEW, found.waits_for)
        return not self._is_there
