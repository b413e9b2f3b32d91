"""From a row whose workflow was ended from outside to a workflow that goes on from there.

A job's does not go on: it ends what is left, bills it, and gives its places back.
"""

from dataclasses import replace

from pydantic import TypeAdapter
from sqlmodel import Session

from activities.db import tables
from activities.lifecycle_requests import WorkflowStart, start_of
from workflows.contracts.base import Contract
from workflows.contracts.job import EndRequest, JobCarry, JobRequest, WorkerCarry
from workflows.contracts.node import NodeCarry, NodeRequest
from workflows.contracts.provider import ProviderRequest, RegionRequest
from workflows.contracts.states import JobStatus, NodeStatus, ProviderStatus, RegionStatus

TERMINATED = EndRequest(reason="its workflow was ended from outside", code="terminated")
_WORKERS = TypeAdapter(tuple[WorkerCarry, ...])
_IN_USE = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE)


def restart_of(session: Session, row: tables.LifecycleRow) -> WorkflowStart:
    """The start that takes up a row's life where its steps end."""
    start = start_of(session, row)
    return replace(start, argument=_carried(row, start.argument))


def _carried(row: tables.LifecycleRow, argument: Contract) -> Contract:
    if isinstance(row, tables.Job) and isinstance(argument, JobRequest):
        return argument if argument.removal else _job(row, argument)
    if isinstance(row, tables.Node) and isinstance(argument, NodeRequest):
        return _node(row, argument)
    if isinstance(argument, ProviderRequest) and row.status != ProviderStatus.ENABLING:
        return argument.model_copy(update={"carried_status": ProviderStatus(row.status)})
    if isinstance(argument, RegionRequest) and row.status != RegionStatus.PROVISIONING:
        return argument.model_copy(update={"carried_status": RegionStatus(row.status)})
    return argument


def _job(row: tables.Job, request: JobRequest) -> JobRequest:
    carried = JobCarry(
        sequence=row.sequence,
        attempt=row.attempt,
        status=JobStatus(row.status),
        workers=_WORKERS.validate_python(row.workers),
    )
    return request.model_copy(update={"carried": carried, "ending": TERMINATED})


def _node(row: tables.Node, request: NodeRequest) -> NodeRequest:
    """A node that was in use goes on so; one that was offline comes back in maintenance."""
    status = NodeStatus(row.status)
    if status not in _IN_USE or row.host is None:
        return request
    resumed = status if status is not NodeStatus.OFFLINE else NodeStatus.MAINTENANCE
    carried = NodeCarry(
        sequence=row.sequence,
        status=status,
        resume_status=resumed,
        host=row.host,
        port=row.port,
        user=row.user,
        root=request.root,
    )
    return request.model_copy(update={"carried": carried})
