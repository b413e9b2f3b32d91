"""The sandbox of workflows, which the worker enters only to run them.

Temporal's library also enters the sandbox for every payload and every summary of a command, to
ask for the serialization context. External payload stores need that context, and codecs with
several keys; we have neither (see `activities/temporal/payload_codec.py`), and the questions took
half of the time of a worker that starts many workflows. A worker without a codec also visits no
payload: the library visits each of them six times, to decode and to encode nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter, SerializationContext, StorageDriverStoreContext
from temporalio.converter._extstore import StorageOperationMetrics
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


Visit = Callable[..., Awaitable[StorageOperationMetrics]]
"""What decodes the payloads of an activation, or encodes those of its completion, in place."""


def only_with_codec(visit: Visit) -> Visit:
    """The visit of all payloads, which is left out where no codec and no storage changes any."""

    @wraps(visit)
    async def visited(
        message: Any, data_converter: DataConverter, **options: Any
    ) -> StorageOperationMetrics:
        if data_converter.payload_codec is None and data_converter.external_storage is None:
            return StorageOperationMetrics()
        return await visit(message, data_converter, **options)

    return visited


def visit_payloads_only_with_codec() -> None:
    """Let all workers of this process leave out visits of payloads that change nothing."""
    for name in ("decode_activation", "encode_completion"):
        visit = getattr(bridge, name)
        if not hasattr(visit, "__wrapped__"):
            setattr(bridge, name, only_with_codec(visit))
