"""What jobs are told in the stories: placements, exits, outages, and requests to end."""

from datetime import UTC, datetime
from typing import Any

from temporalio.exceptions import ApplicationError

from tests.transcripts.whole import Signal
from tests.workflows.fake_machines import node_address
from workflows.contracts.errors import NODE_UNREACHABLE, REFUSED
from workflows.contracts.jobs import (
    EndRequest,
    Exit,
    MachineGone,
    NodeEnding,
    NodeReachable,
    NodeUnreachable,
    Placement,
    WorkerAssignment,
    WorkerExit,
    WorkerProgress,
    run_id,
)
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import JobType, WorkerStatus


def assignment(worker: int, node_id: str, **given: Any) -> WorkerAssignment:
    """Of one worker, whose allocation is named after it and its node."""
    held = f"alloc-{worker}-{node_id}"
    return WorkerAssignment(worker=worker, allocation_id=held, node=address(node_id), **given)


def address(node_id: str, host: str = "10.0.0.1") -> NodeAddress:
    return node_address(node_id).model_copy(update={"host": host})


def placed(*nodes: str, attempt: int = 1, **given: Any) -> Placement:
    """The placement of a worker on each of the nodes."""
    assignments = tuple(assignment(index, node, **given) for index, node in enumerate(nodes))
    return Placement(job_id="job-1", attempt=attempt, assignments=assignments)


def exited(worker: int, node_id: str, *, code: int = 0, attempt: int = 1) -> WorkerExit:
    ended = Exit(exit_code=code, elapsed_s=9)
    return WorkerExit(worker=worker, attempt=attempt, exit=ended, node_id=node_id)


def running(worker: int, node_id: str, *, attempt: int = 1, **given: Any) -> WorkerProgress:
    """The progress of a worker whose command runs."""
    return WorkerProgress(
        index=worker,
        status=WorkerStatus.RUNNING,
        assignment=assignment(worker, node_id, **given),
        run_id=run_id("job-1", worker, attempt),
        elapsed_s=5,
    )


NOTEBOOK: dict[str, Any] = {"type": JobType.NOTEBOOK, "state_interval_s": 600}
ENDED = Exit(exit_code=0, elapsed_s=9)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
BROKEN = ApplicationError("no disk", type=REFUSED, non_retryable=True)
NO_ROUTE = ApplicationError("no route", type=NODE_UNREACHABLE, non_retryable=True)
ASKED = EndRequest(reason="not wanted")
DISCARDS = ASKED.model_copy(update={"discards": True})
NIGHT = EndRequest(reason="for the night")
OUTAGE = NodeUnreachable(node_id="nod-1", reason="no route")
BACK = NodeReachable(node_id="nod-1")
GONE = MachineGone(node_id="nod-1", reason="it was preempted")
LEAVES = NodeEnding(node_id="nod-1", reason="its lease ends")
ON_ONE: Signal = (5, "placed", placed("nod-1"))
ON_TWO: Signal = (5, "placed", placed("nod-1", "nod-2"))
AGAIN = placed("nod-3", attempt=2)
