"""What a step of a device changes in its row, and in the deployment of its assignment."""

from typing import Any

from sqlmodel import Session, col, select

from activities.db.tables import DeploymentTarget, Device, DeviceDeployment
from activities.outbox.requests import wake
from workflows.contracts.deployments import TargetState
from workflows.contracts.devices import (
    AssignmentOutcome,
    DeviceEvent,
    DeviceRun,
    DeviceStatus,
    InferenceStatus,
)
from workflows.contracts.lifecycles import DeviceChanges, Record
from workflows.contracts.nodes import Hardware
from workflows.rules.devices.models import device_model_of

_OPEN = (TargetState.ASKED, TargetState.WAITING, TargetState.LEFT)
_BACK = (DeviceEvent.ACTIVE, DeviceEvent.BACK, DeviceEvent.PREPARED)
"""With each of them a device becomes active."""
_HAS_REVISION = (InferenceStatus.RUNNING, InferenceStatus.FAILED)
"""With each of them the number of a run is that of the revision that the device has."""
NO_COLUMNS = {"run", "deploying", "outcome"}
"""The fields of the changes that stand for several columns."""


def values_of_device(step: Record, changes: DeviceChanges) -> dict[str, Any]:
    """The columns of a device that a step sets besides those of every host."""
    values: dict[str, Any] = {}
    if changes.hardware is not None:
        values["model"] = _model(changes.hardware)
    if changes.run is not None:
        values |= _of_run(changes.run)
        if not step.events:  # Only its output is new: why the newest revision failed stays.
            del values["inference_reason"]
    if changes.deploying is not None:
        values["inference_status"] = InferenceStatus.DEPLOYING.value
    if changes.outcome is not None:
        values |= _of_outcome(step, changes.outcome)
    if step.status == DeviceStatus.ARCHIVED:
        values["removed_at"] = step.at
    return values


def close_targets(session: Session, step: Record, changes: DeviceChanges) -> list[str]:
    """Record what an assignment came to for its deployment; return the outbox rows that wake it.

    An archived device leaves all deployments that still count on it. One that is back wakes those
    that have asked it or wait for it.
    """
    if step.status == DeviceStatus.ARCHIVED:
        return _leave_all(session, step)
    if changes.outcome is not None:
        return _close(session, step, changes.outcome)
    is_back = step.status == DeviceStatus.ACTIVE and any(e.type in _BACK for e in step.events)
    return _wake_all(session, step) if is_back else []


def follow_run(session: Session, step: Record, changes: DeviceChanges) -> None:
    """Record as running what the device says that it runs, where it ran on with an older request.

    A device finishes a switch by itself. Where a newer revision is asked for meanwhile, and fails,
    it goes on with the older one, whose own outcome is never recorded.
    """
    run = changes.run
    if run is None or not run.number or run.status not in _HAS_REVISION:
        return
    if changes.outcome is not None and changes.outcome.assignment.number == run.number:
        return
    is_asked = (
        DeploymentTarget.device_id == step.resource_id,
        DeploymentTarget.assignment_number == run.number,
    )
    query = select(DeviceDeployment).join(
        DeploymentTarget, col(DeploymentTarget.deployment_id) == DeviceDeployment.id
    )
    deployment = session.exec(query.where(*is_asked)).first()
    device = session.get_one(Device, step.resource_id, populate_existing=True)
    running = (device.running_configuration_id, device.running_revision)
    if deployment is None or running == (deployment.configuration_id, deployment.revision):
        return
    device.running_configuration_id = deployment.configuration_id
    device.running_revision = deployment.revision
    device.deployed_at, device.deployed_by = step.at, deployment.requested_by
    session.add(device)
    session.flush()


def _wake_all(session: Session, step: Record) -> list[str]:
    """Wake the deployments of a device that is back, at a bounded rate where many are at once."""
    query = select(DeploymentTarget.deployment_id).where(
        DeploymentTarget.device_id == step.resource_id,
        col(DeploymentTarget.state).in_((TargetState.WAITING, TargetState.ASKED)),
    )
    found = session.exec(query.order_by(col(DeploymentTarget.deployment_id))).all()
    return [wake(session, each, step.at, slowly=True) for each in found]


def _close(session: Session, step: Record, outcome: AssignmentOutcome) -> list[str]:
    """Record the outcome; one of a device that was given up comes late, and counts all the same."""
    if outcome.assignment.deployment_id is None:
        return []
    key = (outcome.assignment.deployment_id, step.resource_id)
    target = session.get(DeploymentTarget, key, with_for_update=True)
    if target is None or target.assignment_number != outcome.assignment.number:
        return []
    was_given_up = target.state == TargetState.FAILED and target.away_since is not None
    if target.state not in _OPEN and not was_given_up:
        return []
    target.state = TargetState.RUNNING if outcome.failed is None else TargetState.FAILED
    target.reason, target.updated_at, target.away_since = outcome.failed, step.at, None
    session.add(target)
    return [wake(session, target.deployment_id, step.at)]


def _leave_all(session: Session, step: Record) -> list[str]:
    query = select(DeploymentTarget).where(
        DeploymentTarget.device_id == step.resource_id, col(DeploymentTarget.state).in_(_OPEN)
    )
    woken = []
    for target in session.exec(query.with_for_update()).all():
        target.state, target.reason = TargetState.SUPERSEDED, "the device was removed"
        target.updated_at = step.at
        session.add(target)
        woken.append(wake(session, target.deployment_id, step.at))
    return woken


def _model(hardware: Hardware) -> str | None:
    model = device_model_of(hardware)
    return None if model is None else model.value


def _of_run(run: DeviceRun) -> dict[str, Any]:
    return {
        "run_number": run.number,
        "inference_status": run.status.value,
        "inference_reason": run.reason or None,
        "exit_code": run.exit_code,
        "output_backlog": run.backlog.model_dump(),
    }


def _of_outcome(step: Record, outcome: AssignmentOutcome) -> dict[str, Any]:
    assignment = outcome.assignment
    values: dict[str, Any] = {"followed_number": assignment.number}
    if outcome.failed is not None:
        values["inference_reason"] = outcome.failed
        return values
    return {
        **values,
        "running_configuration_id": assignment.configuration_id,
        "running_revision": assignment.revision,
        "deployed_at": step.at,
        "deployed_by": assignment.requested_by,
    }
