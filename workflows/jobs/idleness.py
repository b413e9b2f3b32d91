"""The end of a job whose commands do nothing, and the warning before it.

Nodes measure idleness on leased machines alone (`activities/agent/runs/idleness.py`).
"""

from collections.abc import Sequence

from workflows.contracts.events import Event, JobEvent
from workflows.contracts.jobs import EndRequest
from workflows.jobs.worker import Worker

WARNED_AT = 0.75
"""The part of the idle timeout after which people are warned."""


def end_of_idle(workers: Sequence[Worker], limit_s: int | None) -> EndRequest | None:
    """The request to end a job whose running commands have all been idle for so long, else None.

    limit_s: the idle timeout; None: the job has none. A single idle worker does not end the job,
    because it may wait for the others.
    """
    if limit_s is None or _idle_s(workers) < limit_s:
        return None
    reason = f"{_text(workers, limit_s)} (safety.idle_timeout_s)"
    return EndRequest(reason=reason, code="idle")


def warning_of_idle(workers: Sequence[Worker], limit_s: int | None) -> Event | None:
    """The warning that a job which stays idle will be ended, else None; see `end_of_idle`."""
    if limit_s is None or not limit_s * WARNED_AT <= (idle_s := _idle_s(workers)) < limit_s:
        return None
    message = (
        f"{_text(workers, int(idle_s))}: the job is ended after {limit_s} s of that "
        "(safety.idle_timeout_s)"
    )
    return Event(type=JobEvent.IDLE, message=message, details={"limit_s": limit_s})


def _idle_s(workers: Sequence[Worker]) -> float:
    """For how many seconds all running commands have been idle together, by the last polls."""
    return min((worker.idle_s for worker in workers if not worker.has_ended), default=0.0)


def _text(workers: Sequence[Worker], idle_s: int) -> str:
    has_gpus = any(each.assigned.gpu_indices for each in workers if not each.has_ended)
    and_gpus = " and idle GPUs" if has_gpus else ""
    return f"no output{and_gpus} for {idle_s} s"
