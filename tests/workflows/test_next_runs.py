"""What a workflow run hands on is what it was given: nothing of its progress is forgotten."""

import types
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import count
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo
from temporalio import workflow

from workflows.artifacts.artifact_lifecycle import ArtifactLifecycle
from workflows.contracts.artifacts import (
    ArtifactRequest,
    ArtifactStatus,
    Content,
    RetryTransfer,
    WebSource,
)
from workflows.contracts.base import Contract
from workflows.contracts.deployments import (
    DeploymentAction,
    DeploymentOrder,
    DeploymentRequest,
    DeploymentStatus,
)
from workflows.contracts.devices import DeviceProgress, DeviceRequest, DeviceStatus
from workflows.contracts.federation import FederatedRequest, FederatedStatus
from workflows.contracts.jobs import EndRequest, JobProgress, JobRequest, NodeReachable
from workflows.contracts.leases import LeaseProgress, LeaseRequest
from workflows.contracts.nodes import NodeProgress, NodeRequest
from workflows.contracts.providers import ProviderRequest
from workflows.contracts.regions import RegionRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import JobStatus, LeaseStatus, NodeStatus
from workflows.devices.deployment_lifecycle import DeploymentLifecycle
from workflows.devices.device_lifecycle import DeviceLifecycle
from workflows.federation.federated_lifecycle import FederatedLifecycle
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.providers.provider_lifecycle import ProviderLifecycle
from workflows.regions.region_lifecycle import RegionLifecycle

STOP = DeploymentOrder(action=DeploymentAction.STOP)
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
_numbers = count(2)


def filled(model: type[Any], **given: object) -> Any:
    """An instance whose fields all have a value of their own, which is not the default."""
    fields = model.model_fields.items()
    return model(**{name: _value(field) for name, field in fields if name not in given}, **given)


def _value(field: FieldInfo) -> Any:
    if field.annotation is bool:
        return not field.default
    return _of(field.annotation)


def _of(kind: Any) -> Any:
    number = next(_numbers)
    origin, parts = get_origin(kind), [one for one in get_args(kind) if one is not type(None)]
    if origin in (Union, types.UnionType, Annotated):
        return _of(parts[0])
    if origin is Literal:
        return parts[-1]
    if origin is tuple:
        return (_of(parts[0]),)
    if origin in (dict, Mapping):
        return {_of(parts[0]): _of(parts[1])}
    if issubclass(kind, Enum | Contract):
        return list(kind)[-1] if issubclass(kind, Enum) else filled(kind)
    simple = {
        bool: True,
        str: f"text-{number}",
        int: number,
        float: number / 2,
        datetime: BEGAN + timedelta(seconds=number),
    }
    return simple[kind]


def job() -> JobRequest:
    """Of a run that is asked nothing: one that is to end does not continue as new."""
    given = {"status": JobStatus.RUNNING, "ending": None, "gone": (), "is_adopted": False}
    progress = filled(JobProgress, **given)
    asked: JobRequest = filled(JobRequest, resumed_from=progress, ending=None, removal=False)
    return asked


def node(status: NodeStatus = NodeStatus.ACTIVE) -> NodeRequest:
    """Of a run that has read all of its messages."""
    given = {"status": status, "lost": None, "is_adopted": False}
    progress = filled(NodeProgress, removal=Removal(force=True), root="/srv", **given)
    asked: NodeRequest = filled(NodeRequest, resumed_from=progress, root="/srv")
    return asked


def lease(status: LeaseStatus = LeaseStatus.RELEASING) -> LeaseRequest:
    given = {"status": status, "is_adopted": False}
    asked: LeaseRequest = filled(LeaseRequest, resumed_from=filled(LeaseProgress, **given))
    return asked


def provider() -> ProviderRequest:
    asked: ProviderRequest = filled(ProviderRequest)
    return asked


def region() -> RegionRequest:
    asked: RegionRequest = filled(RegionRequest)
    return asked


def artifact() -> ArtifactRequest:
    source = WebSource(type="web", url="https://example.test/a", sha256="0" * 64, unpack=False)
    content = Content(sha256="1" * 64, size_bytes=2, unpacked_bytes=3, file_count=4)
    given = {"source": source, "content": content, "resumed_status": ArtifactStatus.FAILED}
    return cast("ArtifactRequest", filled(ArtifactRequest, artifact_id="dat-1", **given))


def device(status: DeviceStatus = DeviceStatus.ACTIVE) -> DeviceRequest:
    given = {"status": status, "is_adopted": False}
    progress = filled(DeviceProgress, removal=Removal(force=True), root="/srv", **given)
    asked: DeviceRequest = filled(DeviceRequest, resumed_from=progress, root="/srv")
    return asked


def deployment() -> DeploymentRequest:
    given = {"resumed_status": DeploymentStatus.PAUSED}
    asked: DeploymentRequest = filled(DeploymentRequest, **given)
    return asked


def federated() -> FederatedRequest:
    asked: FederatedRequest = filled(FederatedRequest, resumed_status=FederatedStatus.RUNNING)
    return asked


LIFECYCLES: list[tuple[type[Any], Contract]] = [
    (JobLifecycle, job()),
    (NodeLifecycle, node()),
    (LeaseLifecycle, lease()),
    (ProviderLifecycle, provider()),
    (RegionLifecycle, region()),
    (ArtifactLifecycle, artifact()),
    (DeviceLifecycle, device()),
    (DeploymentLifecycle, deployment()),
    (FederatedLifecycle, federated()),
]


@pytest.mark.parametrize(("lifecycle", "asked"), LIFECYCLES)
def test_the_next_run_of_a_lifecycle_is_given_all_that_this_one_was(
    lifecycle: type[Any], asked: Contract
) -> None:
    assert lifecycle(asked)._next_run() == asked


@pytest.mark.parametrize(
    ("lifecycle", "asked", "message", "waits"),
    [
        (JobLifecycle, job(), lambda it: it.node_reachable(NodeReachable(node_id="nod-1")), False),
        (JobLifecycle, job(), lambda it: it.cancel(EndRequest(reason="not wanted")), False),
        (JobLifecycle, job(), lambda it: it.remove(), False),
        (LeaseLifecycle, lease(LeaseStatus.READY), lambda it: it.refresh(), False),
        (LeaseLifecycle, lease(LeaseStatus.RELEASING), lambda it: it.refresh(), True),
        (NodeLifecycle, node(NodeStatus.ACTIVE), lambda it: it.wake(), True),
        (NodeLifecycle, node(NodeStatus.FAILED), lambda it: it.wake(), False),
        (NodeLifecycle, node(), lambda it: it.remove(Removal()), False),
        (ProviderLifecycle, provider(), lambda it: it.recheck(), False),
        (RegionLifecycle, region(), lambda it: it.refresh(), False),
        (ArtifactLifecycle, artifact(), lambda it: it.retry(RetryTransfer()), False),
        (DeviceLifecycle, device(), lambda it: it.wake(), True),
        (DeviceLifecycle, device(DeviceStatus.FAILED), lambda it: it.wake(), False),
        (DeviceLifecycle, device(), lambda it: it.reboot(), False),
        (DeviceLifecycle, device(), lambda it: it.remove(Removal()), False),
        (DeploymentLifecycle, deployment(), lambda it: it.wake(), True),
        (FederatedLifecycle, federated(), lambda it: it.wake(), True),
        (DeploymentLifecycle, deployment(), lambda it: it.order(STOP), False),
    ],
)
def test_a_run_hands_no_message_on_that_the_next_one_would_not_find(
    lifecycle: type[Any], asked: Contract, message: Callable[[Any], None], waits: bool
) -> None:
    """The row holds what a wake is about, and a lease that ends needs no look at its machine."""
    it = lifecycle(asked)
    assert it._next_run() is not None
    message(it)
    assert (it._next_run() is not None) is waits


@pytest.mark.parametrize(("lifecycle", "asked"), LIFECYCLES)
def test_every_lifecycle_answers_a_query_for_its_status_and_says_what_it_hears(
    lifecycle: type[Any], asked: Contract
) -> None:
    definition = workflow._Definition.must_from_class(lifecycle)
    assert "status" in definition.queries
    assert [one.name for one in definition.signals.values() if not one.description] == []
    assert [one.name for one in definition.queries.values() if not one.description] == []
    report = lifecycle(asked).status()
    progress = getattr(asked, "resumed_from", None)
    status = progress.status if progress else asked.resumed_status  # type: ignore[attr-defined]
    assert report.status is status
