"""The events of the datasets, models and checkpoints of a job: how they come to its nodes."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import DataProgress
from workflows.effects.jobs import ContentsBrought
from workflows.jobs.worker import Worker
from workflows.rules.counts import counted, size_in_words

FIRST_PAUSE = timedelta(seconds=15)
LONGEST_PAUSE = timedelta(minutes=10)
"""Between two events of the progress of one staging: at first, and later in one of hours."""


class StagingProgress:
    """The data of all workers on their way, as far as it is worth an event.

    However many workers there are and whatever is signalled, two hours have at most 17 events.
    """

    def __init__(self) -> None:
        self._last: dict[int, DataProgress] = {}
        self._pause = FIRST_PAUSE
        self._due_at: datetime | None = None
        self._is_new = False

    def take(self, found: DataProgress) -> None:
        self._last[found.worker] = found
        self._is_new = True

    def is_due(self) -> bool:
        """Whether there is something new, and the last event is long enough ago."""
        return self._is_new and (self._due_at is None or workflow.now() >= self._due_at)

    def event(self) -> Event:
        """The next event; after it the pause is longer."""
        self._due_at = workflow.now() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._is_new = False
        found = self._last.values()
        done = sum(each.bytes_transferred for each in found)
        total = sum(each.total_bytes or 0 for each in found)
        bytes_per_s = sum(each.bytes_per_s or 0 for each in found)
        left_s = max((each.left_s for each in found if each.left_s is not None), default=None)
        left = "" if left_s is None else f", about {left_s} s left"
        return Event(
            type=JobEvent.DATA_PROGRESS,
            message=f"{size_in_words(done)} of {size_in_words(total)} of data have come to "
            f"{counted(len({each.node_id for each in found}), 'node')}, "
            f"{size_in_words(bytes_per_s)} a second{left}",
            details={
                "bytes_transferred": done,
                "total_bytes": total,
                "bytes_per_s": bytes_per_s,
                "left_s": left_s,
            },
        )


def staging_event(data_bytes: int) -> Event:
    """The event of the begin of the staging.

    data_bytes: of all datasets, models and checkpoints that each worker needs.
    """
    if not data_bytes:
        return Event(type=JobEvent.STAGING, message="code, packages and input are being staged")
    return Event(
        type=JobEvent.STAGING,
        message=f"code, packages, input and {size_in_words(data_bytes)} of datasets, models and "
        "checkpoints are being staged",
        details={"data_bytes": data_bytes},
    )


def staged_events(workers: Sequence[Worker]) -> list[Event]:
    """The events of what has come to the nodes; none for a worker without datasets and the like."""
    return [
        _staged_event(worker.index, worker.staged.contents)
        for worker in workers
        if worker.staged.contents is not None
    ]


def _staged_event(worker: int, found: ContentsBrought) -> Event:
    """What was sent for a worker and how fast, and what its node had."""
    message = f"worker {worker}: {size_in_words(found.bytes)} of data are on its node"
    bytes_per_s = int(found.fetched_bytes / found.seconds) if found.seconds > 0 else None
    if found.fetched_bytes:
        message += f": {size_in_words(found.fetched_bytes)} sent in {found.seconds:.1f} s"
        message += f", {size_in_words(bytes_per_s or 0)} a second"
        if found.cached_bytes:
            message += f", {size_in_words(found.cached_bytes)} of it by the region's cache"
    else:
        message += " already"
    return Event(
        type=JobEvent.DATA_STAGED,
        message=message,
        details={
            "worker": worker,
            "bytes": found.bytes,
            "fetched_bytes": found.fetched_bytes,
            "cached_bytes": found.cached_bytes,
            "seconds": found.seconds,
            "bytes_per_s": bytes_per_s,
        },
    )
