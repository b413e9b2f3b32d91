"""The events of the datasets, models and checkpoints of a job: how they come to its nodes."""

from collections.abc import Sequence

from workflows.contracts.events import Event, JobEvent
from workflows.effects.jobs import ContentsBrought
from workflows.jobs.worker import Worker
from workflows.rules.counts import size_in_words


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
