"""The sandbox is entered to run a workflow, and not to ask whose its payloads are."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.bridge import worker as bridge
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import WorkflowInstance
from temporalio.workflow import Info

from activities.temporal.payload_codec import shared_data_converter
from workers.registry import workflow_runner
from workers.sandbox import QuietInstance, QuietSandbox
from workflows.contracts.removals import Removal


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


class Marked(PayloadCodec):
    """Marks what it encodes."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": b"marked"}, data=each.data) for each in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(data=each.data) for each in payloads]


def completion() -> WorkflowActivationCompletion:
    made = WorkflowActivationCompletion(run_id="run-1")
    result = made.successful.commands.add().complete_workflow_execution.result
    result.CopyFrom(Payload(data=b"42"))
    return made


async def encoded(converter: DataConverter) -> WorkflowActivationCompletion:
    workflow_runner()
    made = completion()
    await bridge.encode_completion(
        made, converter, encode_headers=False, storage_concurrency_limit=1
    )
    return made


async def test_payloads_are_visited_for_a_codec() -> None:
    made = await encoded(DataConverter(payload_codec=Marked()))
    result = made.successful.commands[0].complete_workflow_execution.result
    assert (dict(result.metadata), result.data) == ({"encoding": b"marked"}, b"42")


async def test_payloads_are_not_visited_without_a_codec() -> None:
    """Whoever visits them asks the converter what to do with each."""

    class Untouched(DataConverter):
        async def _encode_payload_sequence(self, payloads: Sequence[Payload]) -> list[Payload]:
            raise AssertionError("a payload is visited")

    assert await encoded(Untouched()) == completion()


def test_a_converter_for_each_activation_shares_one_cache() -> None:
    first, second = shared_data_converter, dataclasses.replace(shared_data_converter)
    assert first.payload_converter_class() is second.payload_converter_class()
    (payload,) = first.payload_converter.to_payloads([Removal(requested_by="usr-1")])
    (read,) = second.payload_converter.from_payloads([payload], [Removal])
    assert read == Removal(requested_by="usr-1")
