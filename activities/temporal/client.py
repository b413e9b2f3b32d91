"""The Temporal client of this process, and signals that activities and routes send with it."""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.base import Contract

CALL_LIMIT_S = 5.0

_client: Client | None = None
_loop: asyncio.AbstractEventLoop | None = None


def set_client(connected: Client) -> None:
    """Set the client of the process; call this on the event loop, before the first use."""
    global _client, _loop  # noqa: PLW0603 - one client for each process
    _client = connected
    try:
        _loop = asyncio.get_running_loop()
    except RuntimeError:
        _loop = None


def client() -> Client:
    """The client of the process.

    Raises: RuntimeError, when `set_client` was not called.
    """
    if _client is None:
        raise RuntimeError("no Temporal client in this process: call set_client first")
    return _client


def client_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of the client; None before `set_client`, and after the loop has ended."""
    return None if _loop is None or _loop.is_closed() else _loop


async def limited(call: Coroutine[Any, Any, Any], what: str) -> Any:
    """The answer of a call to Temporal, with a timeout of `CALL_LIMIT_S`.

    The client's own `rpc_timeout` does not bound a call that has no connection.
    Raises: ApplicationError, to be retried, when Temporal does not answer in time.
    """
    try:
        return await asyncio.wait_for(call, CALL_LIMIT_S)
    except TimeoutError as cause:
        raise ApplicationError(f"{what}: Temporal has not answered in {CALL_LIMIT_S} s") from cause


async def tell(
    workflow_id: str, signal: str, argument: Contract | None = None, *, request_id: str = ""
) -> bool:
    """Send a signal to a workflow; False when there is no such workflow, or it has ended.

    request_id: see `signal_once`; without one, the workflow receives every repetition.
    Raises: RPCError, ApplicationError, both to be retried, when Temporal did not take the signal.
    """
    arguments = [] if argument is None else [argument]
    if request_id:
        call = signal_once(client(), workflow_id, signal, arguments, request_id=request_id)
    else:
        handle = client().get_workflow_handle(workflow_id)
        call = handle.signal(signal, args=arguments, rpc_timeout=timedelta(seconds=CALL_LIMIT_S))
    try:
        await limited(call, f"{workflow_id}: signal {signal}")
    except RPCError as cause:
        if cause.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


async def signal_once(
    temporal: Client, workflow_id: str, signal: str, arguments: Sequence[Any], *, request_id: str
) -> None:
    """Send a signal; the server drops a repetition with the same `request_id`.

    A sender whose answer is lost does not know whether the signal has arrived, and can therefore
    always send it again.
    Raises: RPCError, when the server refuses the signal or does not answer.
    """
    request = SignalWorkflowExecutionRequest(
        namespace=temporal.namespace,
        workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        signal_name=signal,
        identity=temporal.identity,
        request_id=request_id,
    )
    if arguments:
        request.input.payloads.extend(await temporal.data_converter.encode(arguments))
    await temporal.workflow_service.signal_workflow_execution(
        request, retry=True, timeout=timedelta(seconds=CALL_LIMIT_S)
    )


def id_of_this_activity() -> str:
    """The id that all attempts of this activity share, for signals that are to arrive once."""
    if not activity.in_activity():
        return str(uuid4())
    info = activity.info()
    return f"{info.workflow_run_id}/{info.activity_id}"
