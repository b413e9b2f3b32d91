"""The sandbox of workflows, which the worker enters only to run them.

Temporal's library also enters the sandbox for every payload and every summary of a command, to
ask for the serialization context. External payload stores need that context, and codecs with
several keys; we have neither (see `activities/temporal/payload_codec.py`), and the questions took
half of the time of a worker that starts many workflows.
"""

from dataclasses import dataclass
from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import Info

_NO_CONTEXT = StorageDriverStoreContext(target=None)


class QuietInstance(WorkflowInstance):
    """A workflow in its sandbox, which answers questions for a context without entering it."""

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        return self._inner.activate(act)

    def get_serialization_context(
        self,
        command_info: Any,  # noqa: ARG002 - the library names it
    ) -> SerializationContext | None:
        return None

    def get_external_store_context(
        self,
        command_info: Any,  # noqa: ARG002 - the library names it
    ) -> StorageDriverStoreContext:
        return _NO_CONTEXT

    def get_info(self) -> Info:
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        return self._inner.get_thread_id()


@dataclass(frozen=True)
class QuietSandbox(SandboxedWorkflowRunner):
    """The sandboxed runner for a client whose codec needs no context, without external storage."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return QuietInstance(super().create_instance(det))
