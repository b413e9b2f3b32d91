"""Machines that were made for a job and stay after it: `safety.auto_terminate` is false."""

from collections.abc import Sequence

from workflows.contracts.events import Event
from workflows.contracts.job import JobRequest
from workflows.contracts.states import JobStatus, WorkerStatus
from workflows.ending import Ending
from workflows.worker import Worker

_BY_ITSELF = (JobStatus.FINISHED, JobStatus.FAILED)


def staying(request: JobRequest, ending: Ending, workers: Sequence[Worker]) -> tuple[str, ...]:
    """Nodes whose machines stay until a person ends them, or the deadline of their lease does.

    None where anybody or anything has asked for the job's end, idleness and used-up credits too,
    or where one of its commands was lost: then nobody wants them, or nobody has seen them.
    """
    ended = ending.outcome in _BY_ITSELF and not ending.is_asked
    lost = any(worker.status is WorkerStatus.LOST for worker in workers)
    if request.auto_terminate or not ended or lost:
        return ()
    placed = (worker.assignment for worker in workers)
    return tuple(place.node.node_id for place in placed if place and place.ephemeral)


def told_to_stay(nodes: Sequence[str]) -> tuple[Event, ...]:
    """What people are told of them, who pay for them; nothing where there are none."""
    if not nodes:
        return ()
    message = (
        f"the machine of {', '.join(nodes)} stays and costs until it is removed, or until the "
        "deadline of its lease (safety.auto_terminate is false)"
    )
    return (Event(type="job.machine-stays", message=message, details={"nodes": list(nodes)}),)
