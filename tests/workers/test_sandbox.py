"""The sandbox is entered to run a workflow, and not to ask whose its payloads are."""

from typing import Any

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance
from temporalio.workflow import Info

from workers.registry import workflow_runner
from workers.sandbox import QuietInstance, QuietSandbox


class Entered(WorkflowInstance):
    """Counts how often it is entered."""

    def __init__(self) -> None:
        self.activated = self.asked = 0

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        self.activated += 1
        return WorkflowActivationCompletion(run_id=act.run_id)

    def get_serialization_context(self, command_info: Any) -> Any:
        self.asked += 1

    def get_external_store_context(self, command_info: Any) -> Any:
        self.asked += 1

    def get_info(self) -> Info:
        raise NotImplementedError


def test_payloads_do_not_enter_the_sandbox_and_activations_do() -> None:
    inner = Entered()
    instance = QuietInstance(inner)
    assert instance.activate(WorkflowActivation(run_id="run-1")).run_id == "run-1"
    assert instance.get_serialization_context(None) is None
    assert instance.get_external_store_context(None).target is None
    assert (inner.activated, inner.asked) == (1, 0)


def test_our_workers_have_that_sandbox() -> None:
    assert isinstance(workflow_runner(), QuietSandbox)
