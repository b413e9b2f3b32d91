"""The log of one worker of a job: the logs of its attempts, one after another."""

import time
from collections.abc import Hashable, Iterator

from sqlmodel import select

from activities.db import tables
from activities.db.session import database
from activities.settings import settings
from activities.storage.log_times import Times, log_times
from activities.storage.logs import LogStore, log_store
from api.event_streams import Source
from api.services.job_responses import ENDED
from workflows.contracts.jobs import run_id
from workflows.contracts.statuses import JobStatus

ROW_INTERVAL_S = 0.4
LONGEST_CHARACTER = 4
_QUIET = (*ENDED, JobStatus.STOPPED, JobStatus.REMOVING)


class WorkerLog(Source):
    """The log of one worker; reads the job's row for the number of attempts and the status."""

    def __init__(self, job_id: str, worker: int, logs: LogStore | None = None) -> None:
        self.key = ("log", job_id, worker)
        self.job_id = job_id
        self.worker = worker
        self._logs = logs or log_store(settings().storage)
        self._times = log_times(settings().storage)
        self._attempts = 1
        self._has_ended = False
        self._row_read_at = -ROW_INTERVAL_S

    def look(self) -> Hashable:
        """Whether the log has ended, and how long it is."""
        return self.ended(), self.length()

    def ended(self) -> bool:
        """Whether the job has ended or is stopped, so that its log does not grow.

        The job's row is read at most every `ROW_INTERVAL_S`.
        """
        if time.monotonic() - self._row_read_at < ROW_INTERVAL_S:
            return self._has_ended
        with database().read() as session:
            status, attempt = session.exec(
                select(tables.Job.status, tables.Job.attempt).where(tables.Job.id == self.job_id)
            ).one()
        self._attempts = attempt
        self._has_ended = status in _QUIET
        self._row_read_at = time.monotonic()
        return self._has_ended

    def length(self) -> int:
        """The number of bytes stored of all attempts."""
        return sum(self._logs.length(run) for run in self._runs())

    def read(self, offset: int) -> bytes:
        """The stored bytes from `offset` on, about one chunk; empty at the end.

        An attempt may end within a character, so a short chunk also has bytes of the next attempt.
        """
        content = b""
        for run in self._runs():
            content += self._logs.read(run, max(offset, 0))
            if len(content) >= LONGEST_CHARACTER:
                break
            offset -= self._logs.length(run)
        return content

    def stream(self, offset: int, length: int) -> Iterator[bytes]:
        """The bytes from `offset` until `length`."""
        while offset < length and (content := self.read(offset)[: length - offset]):
            yield content
            offset += len(content)

    def span(self, start: int, end: int) -> bytes:
        """The bytes from `start` until `end`, in memory."""
        return b"".join(self.stream(start, end))

    def times(self) -> list[tuple[int, Times]]:
        """The marks of each attempt's log, with the offset at which it begins, in order."""
        found, begins = [], 0
        for run in self._runs():
            found.append((begins, self._times.read(run)))
            begins += self._logs.length(run)
        return found

    @property
    def times_interval_s(self) -> float:
        """How exact the marks are."""
        return self._times.interval_s

    def _runs(self) -> list[str]:
        attempts = range(1, self._attempts + 1)
        return [run_id(self.job_id, self.worker, attempt) for attempt in attempts]
