"""The Temporal client of the processes of rows: the methods that they use, on the life's server.

The answers and the errors are those of `temporalio.client.Client`, so that the code that calls it
runs as it is. `boundary` is told of each call, because a process may die between a commit and a
call; see `Boundary`.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

from temporalio import workflow as sdk
from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import (
    SearchAttributeKey,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.lifecycles.lost_workflows import HISTORY_SERVICE
from activities.temporal.payload_codec import shared_data_converter
from activities.temporal.singletons import wanted_schedules
from tests.simulation.contracts import AlreadyStarted, Execution, NotFound, Temporal, Unavailable
from tests.simulation.rows_real.boundary import Boundary
from workers.registry import WORKFLOWS
from workflows.contracts.base import Contract
from workflows.contracts.lifecycles import LIFECYCLE_NOUNS

BILLED_ATTEMPT = "BilledAttempt"
"""The search attribute that carries the memo of job billings, because `Temporal` has no memo."""

T = TypeVar("T")
_OF_SCHEDULE = re.compile(r"TemporalScheduledById = '(.+?)'")
_SIGNALS: Mapping[str, Mapping[str | None, Any]] = {
    found.name or "": found.signals for found in map(sdk._Definition.must_from_class, WORKFLOWS)
}
_LIFECYCLES = {noun.name: noun.workflow for noun in LIFECYCLE_NOUNS}


class TemporalClient:
    """What `activities` uses of `temporalio.client.Client`."""

    namespace = "default"
    identity = "rows"
    data_converter = shared_data_converter

    def __init__(self, temporal: Temporal, boundary: Boundary) -> None:
        self.temporal = temporal
        self.boundary = boundary
        self.workflow_service = SimpleNamespace(signal_workflow_execution=self._signal)

    async def start_workflow(
        self,
        workflow: str,
        argument: Contract,
        *,
        id: str,  # noqa: A002 - the SDK names it
        task_queue: str,
        search_attributes: TypedSearchAttributes | None = None,
        id_reuse_policy: WorkflowIDReusePolicy = WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy: WorkflowIDConflictPolicy = WorkflowIDConflictPolicy.UNSPECIFIED,
        start_signal: str | None = None,
        memo: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Raises: RPCError, WorkflowAlreadyStartedError."""
        self.boundary.calls()
        attributes = {pair.key.name: pair.value for pair in search_attributes or ()}
        if memo:
            attributes[BILLED_ATTEMPT] = memo["attempt"]
        if id_conflict_policy is WorkflowIDConflictPolicy.TERMINATE_EXISTING:
            self._make_room(id)
        is_used = id_conflict_policy is WorkflowIDConflictPolicy.USE_EXISTING
        is_once = id_reuse_policy is WorkflowIDReusePolicy.REJECT_DUPLICATE
        try:
            self.temporal.start(
                workflow,
                id,
                argument,
                search_attributes=attributes,
                reuse="reject_duplicate" if is_once else "allow_duplicate",
                conflict="use_existing" if is_used else "fail",
                signal=None if start_signal is None else (start_signal, None),
            )
        except AlreadyStarted as cause:
            raise WorkflowAlreadyStartedError(id, workflow) from cause
        except Unavailable as cause:
            _refuse(RPCStatusCode.UNAVAILABLE, f"{id}: start", cause)

    def get_workflow_handle(self, workflow_id: str, *, run_id: str | None = None) -> "Handle":
        return Handle(self, workflow_id, run_id or "")

    async def list_workflows(self, query: str, page_size: int = 1000) -> AsyncIterator[Any]:
        """The running workflows, or those of them that a schedule has started."""
        scheduled = _OF_SCHEDULE.search(query)
        found = answered(self.temporal.running, query)
        for execution in found:
            if scheduled is None or execution.workflow_id.startswith(f"{scheduled[1]}-"):
                yield Described(execution)

    async def list_schedules(self) -> AsyncIterator[Any]:
        """All that are wanted: the engine keeps its schedules itself."""

        async def listed() -> AsyncIterator[Any]:
            for name, wanted in wanted_schedules().items():
                state = SimpleNamespace(note=wanted.note)
                yield SimpleNamespace(id=name, schedule=SimpleNamespace(state=state))

        return listed()

    async def _signal(self, request: SignalWorkflowExecutionRequest, **_: Any) -> None:
        """A signal with an id, as `signal_once` sends it: once more as a model of its own type."""
        workflow_id, name = request.workflow_execution.workflow_id, request.signal_name
        argument = None
        if request.input.payloads:
            types = _SIGNALS[_workflow_of(workflow_id)][name].arg_types
            (argument,) = await self.data_converter.decode(request.input.payloads, types)
        self.signal(workflow_id, name, argument, request.request_id)

    def signal(self, workflow_id: str, name: str, argument: Any, request_id: str = "") -> None:
        self.boundary.calls()
        send = self.temporal.signal
        what = f"{workflow_id}: signal {name}"
        answered(lambda: send(workflow_id, name, argument, request_id=request_id), what)

    def _make_room(self, workflow_id: str) -> None:
        """As the server ends the earlier run, when the policy of a start says so."""
        try:
            self.temporal.terminate(workflow_id, identity=HISTORY_SERVICE)
        except NotFound:
            return
        except Unavailable as cause:
            _refuse(RPCStatusCode.UNAVAILABLE, f"{workflow_id}: start", cause)


@dataclass(frozen=True)
class Handle:
    """What is used of `temporalio.client.WorkflowHandle`."""

    client: TemporalClient
    workflow_id: str
    run_id: str

    async def signal(self, name: str, *, args: Sequence[Any] = (), **_: Any) -> None:
        self.client.signal(self.workflow_id, name, args[0] if args else None)

    async def describe(self) -> "Described":
        return Described(self._found())

    async def terminate(self, reason: str) -> None:
        self.client.boundary.calls()
        terminate = self.client.temporal.terminate
        answered(
            lambda: terminate(self.workflow_id, run_id=self.run_id, identity=self.client.identity),
            f"{self.workflow_id}: terminate, {reason}",
        )

    async def fetch_history_events(self, **_: Any) -> AsyncIterator[Any]:
        """The last event of a terminated run alone, which says who has terminated it."""
        by = SimpleNamespace(identity=self._found().terminated_by)
        yield SimpleNamespace(workflow_execution_terminated_event_attributes=by)

    def _found(self) -> Execution:
        describe = self.client.temporal.describe
        return answered(lambda: describe(self.workflow_id), f"{self.workflow_id}: describe")


class Described:
    """What is used of `temporalio.client.WorkflowExecutionDescription`."""

    def __init__(self, execution: Execution) -> None:
        self.id = execution.workflow_id
        self.run_id = execution.run_id
        self.status = WorkflowExecutionStatus[execution.status.upper()]
        self.typed_search_attributes = Attributes(execution.search_attributes)
        task = SimpleNamespace(attempt=execution.task_attempt)
        self.raw_description = SimpleNamespace(pending_workflow_task=task)
        self._attributes = execution.search_attributes

    async def memo_value(self, key: str, default: Any) -> Any:
        """The memo of job billings, whose only value is the attempt."""
        return self._attributes.get(BILLED_ATTEMPT, default)


@dataclass(frozen=True)
class Attributes:
    """What is used of `temporalio.common.TypedSearchAttributes`."""

    values: Mapping[str, Any]

    def get(self, key: SearchAttributeKey[Any]) -> Any:
        found = self.values.get(key.name)
        return found[0] if isinstance(found, list | tuple) and found else found


def answered(call: Callable[[], T], what: str) -> T:
    """The answer of the life's server. Raises: RPCError, as a server or a lost connection gives."""
    try:
        return call()
    except NotFound as cause:
        _refuse(RPCStatusCode.NOT_FOUND, what, cause)
    except Unavailable as cause:
        _refuse(RPCStatusCode.UNAVAILABLE, what, cause)


def _refuse(status: RPCStatusCode, what: str, cause: Exception) -> NoReturn:
    raise RPCError(f"{what}: {cause}", status, b"") from cause


def _workflow_of(workflow_id: str) -> str:
    """The type of the lifecycle with this id; only lifecycles receive signals with an id."""
    noun, _, rest = workflow_id.partition("/")
    if "/" in rest:
        raise ValueError(f"{workflow_id}: is no lifecycle, asked a signal with an id")
    return _LIFECYCLES[noun]
