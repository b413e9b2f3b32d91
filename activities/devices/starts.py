"""Starts of the lifecycles of devices and deployments, from their rows."""

from sqlmodel import Session

from activities.db.tables import Device, DeviceDeployment, Region
from activities.outbox.workflow_starts import WorkflowStart, removal_of, workflow_start
from workflows.contracts.deployments import DeploymentRequest, DeploymentStatus, RolloutPolicy
from workflows.contracts.devices import (
    DeviceAssignment,
    DeviceProgress,
    DeviceRequest,
    DeviceRun,
    DeviceStatus,
    InferenceStatus,
    OutputBacklog,
)


def start_device(session: Session, row: Device) -> WorkflowStart[DeviceRequest]:
    """The start of a device's workflow."""
    region = session.get_one(Region, row.region_id)
    request = DeviceRequest(
        device_id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        name=row.name,
        minion_id=row.minion_id,
        host=row.host,
        port=row.port,
        user=row.user,
        root=region.node_root,
        own_worker=region.own_worker,
        exclusive=region.exclusive_nodes,
        relaxed_requirements=tuple(region.relaxed_requirements),
        sequence=row.sequence,
    )
    return workflow_start(row, request, {"RegionId": row.region_id})


def resume_device(_: Session, row: Device, request: DeviceRequest) -> DeviceRequest:
    """The request that adopts a device: it comes back to the status of its row.

    An onboarding begins anew, and what the device runs is asked of it.
    """
    removal = removal_of(row)
    resumed_from = DeviceProgress(
        sequence=row.sequence,
        status=DeviceStatus(row.status),
        resume_status=_resume_status(row),
        host=row.host,
        port=row.port,
        user=row.user,
        root=request.root,
        minion_id=row.minion_id,
        reason=row.status_reason,
        removal=removal.removal if removal else None,
        is_adopted=True,
        followed=DeviceAssignment(number=row.followed_number) if row.followed_number else None,
        run=_run_of(row),
    )
    return request.model_copy(update={"resumed_from": resumed_from})


def _run_of(row: Device) -> DeviceRun:
    """What the device said last; a deployment that was under way is followed again."""
    status = InferenceStatus(row.inference_status)
    if status is InferenceStatus.DEPLOYING:
        status = InferenceStatus.STOPPED
    # What runs or is stopped gives no reason: that in the row is of a revision that failed.
    reason = (row.inference_reason or "") if status is InferenceStatus.FAILED else ""
    return DeviceRun(
        number=row.run_number,
        status=status,
        exit_code=row.exit_code,
        reason=reason[:2000],
        backlog=OutputBacklog.model_validate(row.output_backlog or {}),
    )


def _resume_status(row: Device) -> DeviceStatus:
    """Whether the device takes deployments when it is connected: as a person has wanted last."""
    if row.status in (DeviceStatus.ACTIVE, DeviceStatus.MAINTENANCE):
        return DeviceStatus(row.status)
    was_followed = row.seen_revision >= row.wanted_revision
    is_held = was_followed and row.wanted_status == DeviceStatus.MAINTENANCE
    return DeviceStatus.MAINTENANCE if is_held else DeviceStatus.ACTIVE


def start_deployment(_: Session, row: DeviceDeployment) -> WorkflowStart[DeploymentRequest]:
    """The start of a deployment's workflow."""
    request = DeploymentRequest(
        deployment_id=row.id,
        account_id=row.account_id,
        region_id=row.region_id,
        name=row.name,
        policy=RolloutPolicy.model_validate(row.policy),
        deadline=row.deadline,
        sequence=row.sequence,
    )
    return workflow_start(row, request, {"RegionId": row.region_id})


def resume_deployment(
    _: Session, row: DeviceDeployment, request: DeploymentRequest
) -> DeploymentRequest:
    """The request that adopts a deployment: it comes back to the status of its row."""
    update = {
        "resumed_status": DeploymentStatus(row.status),
        "resumed_reason": row.status_reason,
        "accepted_lost": row.accepted_lost,
    }
    return request.model_copy(update=update)
