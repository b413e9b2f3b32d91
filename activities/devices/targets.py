"""The targets of a deployment: which of its devices wait, are under way, or have left it.

A step reads and changes at most `BATCH` of them, so that a transaction holds its locks shortly
also where a deployment has thousands of devices.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_
from sqlmodel import Session, col, select

from activities.db.tables import DeploymentTarget, Device, DeviceDeployment
from activities.devices.assignments import NEWER
from workflows.contracts.deployments import RolloutCounts, TargetState
from workflows.contracts.devices import DeviceStatus
from workflows.rules.devices.rollout import LOST_LIMIT

BATCH = 500
LEFT_ALONE = (DeviceStatus.REMOVING, DeviceStatus.ARCHIVED)
NOT_REACHED = "it could not be reached since it was asked"
SET_TO_ANOTHER = "it was set to another configuration"
REMOVED = "the device was removed"
OPEN = (TargetState.WAITING, TargetState.ASKED)


def settle(session: Session, row: DeviceDeployment, at: datetime) -> bool:
    """Let devices leave the deployment that do not belong to it any more, or are lost for too long.

    These are those with a newer assignment, those that are removed, and those that are set to
    another configuration before they were asked. An asked device that cannot be reached for
    `LOST_LIMIT` has failed; one in maintenance is left to follow its assignment after it.
    A target that a step of its device holds now is left to the next call, so that neither waits.
    Returns whether there may be more of them.
    """
    status = col(Device.status)
    is_asked = col(DeploymentTarget.state) == TargetState.ASKED
    is_waiting = col(DeploymentTarget.state) == TargetState.WAITING
    away_since = col(DeploymentTarget.away_since)
    is_away = status != DeviceStatus.ACTIVE
    changes = or_(
        and_(or_(is_asked, is_waiting), status.in_(LEFT_ALONE)),
        and_(is_asked, col(Device.assignment_number) > col(DeploymentTarget.assignment_number)),
        and_(is_waiting, _is_set_to_another(row)),
        and_(is_asked, is_away, away_since.is_(None)),
        and_(is_asked, is_away, away_since <= at - LOST_LIMIT),
        and_(is_asked, ~is_away, away_since.is_not(None)),
    )
    found = session.exec(
        select(DeploymentTarget, Device)
        .join(Device, col(Device.id) == DeploymentTarget.device_id)
        .where(DeploymentTarget.deployment_id == row.id, changes)
        .order_by(col(DeploymentTarget.device_id))
        .limit(BATCH)
        .with_for_update(of=DeploymentTarget, skip_locked=True)
        .execution_options(populate_existing=True)
    ).all()
    for target, device in found:
        _settle_one(row, target, device, at)
        session.add(target)
    session.flush()
    return len(found) == BATCH


def _settle_one(
    row: DeviceDeployment, target: DeploymentTarget, device: Device, at: datetime
) -> None:
    if leaves(row, target, device, at):
        return
    target.updated_at = at
    if device.status == DeviceStatus.ACTIVE:
        target.away_since = None
    elif target.away_since is None:
        target.away_since = at
    elif device.status == DeviceStatus.MAINTENANCE:
        target.state, target.away_since = TargetState.LEFT, None
    else:
        target.state, target.reason = TargetState.FAILED, NOT_REACHED


def leaves(row: DeviceDeployment, target: DeploymentTarget, device: Device, at: datetime) -> bool:
    """Let the target leave the deployment, if its device does not belong to it any more."""
    was_asked = target.state == TargetState.ASKED
    reason = None
    if device.status in LEFT_ALONE:
        reason = REMOVED
    elif was_asked and device.assignment_number > (target.assignment_number or 0):
        reason = NEWER
    elif not was_asked and device.configuration_id != row.configuration_id:
        reason = SET_TO_ANOTHER
    if reason is None:
        return False
    target.state, target.reason, target.updated_at = TargetState.SUPERSEDED, reason, at
    return True


def _is_set_to_another(row: DeviceDeployment) -> ColumnElement[bool]:
    return col(Device.configuration_id).is_distinct_from(row.configuration_id)


def waiting(
    session: Session, row: DeviceDeployment, *, present: bool, most: int
) -> Sequence[tuple[DeploymentTarget, Device]]:
    """The waiting devices, locked in the order of their ids.

    present: those that follow an assignment at once, else those that are away.
    """
    return session.exec(
        select(DeploymentTarget, Device)
        .join(Device, col(Device.id) == DeploymentTarget.device_id)
        .where(
            DeploymentTarget.deployment_id == row.id,
            DeploymentTarget.state == TargetState.WAITING,
            ~_is_set_to_another(row),
            col(Device.status) == DeviceStatus.ACTIVE if present else _is_absent(),
        )
        .order_by(col(DeploymentTarget.device_id))  # By it, their index is read in order.
        .limit(most)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).all()


def _is_absent() -> ColumnElement[bool]:
    return col(Device.status).not_in((DeviceStatus.ACTIVE, *LEFT_ALONE))


def open_targets(session: Session, deployment_id: str) -> Sequence[tuple[DeploymentTarget, Device]]:
    """Some of those without an end, locked as they are now; their devices are locked before.

    Else a device could be asked for something newer meanwhile, and be left with this.
    """
    is_open = (
        DeploymentTarget.deployment_id == deployment_id,
        col(DeploymentTarget.state).in_(OPEN),
    )
    query = select(DeploymentTarget.device_id).where(*is_open)
    ids = session.exec(query.order_by(col(DeploymentTarget.device_id)).limit(BATCH)).all()
    locked = select(Device).where(col(Device.id).in_(ids)).order_by(col(Device.id))
    devices = {
        device.id: device
        for device in session.exec(
            locked.with_for_update().execution_options(populate_existing=True)
        )
    }
    targets = session.exec(
        select(DeploymentTarget)
        .where(*is_open, col(DeploymentTarget.device_id).in_(ids))
        .order_by(col(DeploymentTarget.device_id))
        .with_for_update()
        .execution_options(populate_existing=True)
    ).all()
    return [(target, devices[target.device_id]) for target in targets]


def counts_of(session: Session, deployment_id: str) -> RolloutCounts:
    """How many devices of the deployment are in each state."""
    counted = session.exec(
        select(DeploymentTarget.state, func.count())
        .where(DeploymentTarget.deployment_id == deployment_id)
        .group_by(col(DeploymentTarget.state))
    ).all()
    away = session.exec(
        select(func.count())
        .select_from(DeploymentTarget)
        .join(Device, col(Device.id) == DeploymentTarget.device_id)
        .where(
            DeploymentTarget.deployment_id == deployment_id,
            DeploymentTarget.state == TargetState.WAITING,
            _is_absent(),
        )
    ).one()
    lost = session.exec(
        select(func.count())
        .select_from(DeploymentTarget)
        .where(
            DeploymentTarget.deployment_id == deployment_id,
            DeploymentTarget.state == TargetState.FAILED,
            col(DeploymentTarget.away_since).is_not(None),
        )
    ).one()
    return RolloutCounts(away=away, lost=lost, **dict(counted))
