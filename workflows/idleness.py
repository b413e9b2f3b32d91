"""When a job has done nothing for as long as it may."""

from collections.abc import Sequence

from workflows.contracts.job import EndRequest
from workflows.worker import Worker


def end_of_idle(workers: Sequence[Worker], limit_s: int | None) -> EndRequest | None:
    """What ends it, where each of its commands that run has done nothing for so long by the last
    look; None: it goes on.

    A worker may wait for the others for as long as one of them works.
    """
    running = [worker for worker in workers if not worker.has_ended]
    if limit_s is None or not running or any(worker.idle_s < limit_s for worker in running):
        return None
    and_gpus = " and idle GPUs" if any(worker.place.gpu_indices for worker in running) else ""
    reason = f"no output{and_gpus} for {limit_s} s (safety.idle_timeout_s)"
    return EndRequest(reason=reason, code="idle")
