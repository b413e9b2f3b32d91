"""A workflow run in the cache of a process: the SDK's instance, and what Core knows of it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio import workflow
from temporalio.api.common.v1 import Payloads
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.converter import DefaultFailureConverter
from temporalio.worker import (
    UnsandboxedWorkflowRunner,
    WorkflowInstance,
    WorkflowInstanceDetails,
)

from tests.simulation.engine.clock import BEGIN
from tests.simulation.engine.execution import TASK_LIMIT_S, DoneTask, Job, Key, Run
from tests.simulation.engine.randomness import seed_of
from tests.simulation.engine.values import Values

BEGIN_US = round(BEGIN.timestamp()) * 1_000_000
_NO_RESULT = Payloads()
_RUNNER = UnsandboxedWorkflowRunner()
_EXTERNS: Mapping[str, Any] = {
    "__temporal_get_metric_meter": lambda: None,
    "__temporal_assert_local_activity_valid": lambda name: None,
}
_NO_LOOP = type("_NoLoop", (asyncio.AbstractEventLoop,), {})()
"""The SDK asks for a running event loop while an instance is made, and runs nothing on it."""


class _Instant(int):
    """Microseconds of virtual time, as the SDK reads them of a `Timestamp`."""

    def ToNanoseconds(self) -> int:  # noqa: N802 - the library's own
        return (BEGIN_US + self) * 1000


@dataclass(slots=True)
class Activation:
    """What an instance reads of Core's `WorkflowActivation`, of which it is given no copy.

    timestamp: the time that the workflow sees; history_length: in events.
    """

    run_id: str
    jobs: Sequence[Job]
    timestamp: _Instant | Timestamp
    available_internal_flags: Sequence[int] = ()
    history_length: int = 0
    history_size_bytes: int = 0
    continue_as_new_suggested: bool = False
    is_replaying: bool = False
    target_worker_deployment_version_changed: bool = False
    deployment_version_for_current_task: None = None


class Instance:
    """One workflow run in a cache.

    open: the timers, activities and signals of which the workflow has not been told the end, with
    the command of each; last: the completed task that it has seen last, None: it has seen none.
    """

    def __init__(self, run: Run, kind: type, values: Values) -> None:
        self.open: dict[Key, Any] = {}
        self.last: DoneTask | None = None
        self._run_id = run.run_id
        self._inner = _new(run, kind, values)

    def activation(
        self, jobs: Sequence[Job], at: int, length: int, most: int, flags: Sequence[int]
    ) -> Activation:
        """One with these jobs at a time; length: of the history; most: when to begin anew."""
        return Activation(
            self._run_id,
            jobs,
            _Instant(at),
            flags,
            history_length=length,
            history_size_bytes=length * 400,
            continue_as_new_suggested=length >= most,
        )

    def activate(self, activation: Activation) -> WorkflowActivationCompletion:
        outer = asyncio._get_running_loop()
        completion = self._inner.activate(cast("WorkflowActivation", activation))
        if outer is not None:
            asyncio._set_running_loop(outer)
        return completion

    def evict(self) -> None:
        """End all its tasks, as a worker does that forgets it."""
        if not getattr(self._inner, "_tasks"):  # noqa: B009 - the library's own
            return
        job = Job()
        job.remove_from_cache.SetInParent()
        self.activate(Activation(self._run_id, (job,), _Instant()))


def _new(run: Run, kind: type, values: Values) -> WorkflowInstance:
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(_NO_LOOP)
    try:
        return _RUNNER.create_instance(_details(run, kind, values))
    finally:
        asyncio._set_running_loop(outer)


def _details(run: Run, kind: type, values: Values) -> WorkflowInstanceDetails:
    definition = workflow._Definition.must_from_class(kind)
    return WorkflowInstanceDetails(
        payload_converter_factory=values.new_converter,
        failure_converter_class=DefaultFailureConverter,
        interceptor_classes=(),
        defn=definition,
        info=_info(run),
        randomness_seed=seed_of(run.run_id),
        extern_functions=_EXTERNS,
        disable_eager_activity_execution=False,
        worker_level_failure_exception_types=(),
        patch_activation_callback=None,
        last_completion_result=_NO_RESULT,
        last_failure=None,
    )


def _info(run: Run) -> workflow.Info:
    begun = BEGIN + timedelta(microseconds=run.started_at)
    return workflow.Info(
        attempt=1,
        continued_run_id=run.continued_from or None,
        cron_schedule=None,
        execution_timeout=None,
        first_execution_run_id=run.first_run_id,
        headers={},
        namespace="default",
        original_execution_run_id=run.run_id,
        parent=None,
        root=None,
        priority=Priority.default,
        raw_memo={},
        retry_policy=None,
        run_id=run.run_id,
        run_timeout=None,
        search_attributes={},
        start_time=begun,
        workflow_start_time=begun,
        task_queue="main",
        task_timeout=timedelta(seconds=TASK_LIMIT_S),
        typed_search_attributes=TypedSearchAttributes([]),
        workflow_id=run.workflow_id,
        workflow_type=run.workflow,
    )
