"""The rollout of a deployment: its devices are asked in steps, counted, and left or rolled back.

Each activity is one transaction that holds the row of its deployment; then devices are locked in
the order of their ids, and targets after their devices, as a step of a device does.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import func, update
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import DeploymentTarget, Device, DeviceDeployment
from activities.devices.assignments import NEWER, ask
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import wake
from workflows.contracts.deployments import RolloutCounts, TargetState
from workflows.contracts.devices import DeviceAssignment, DeviceStatus
from workflows.contracts.errors import NOT_FOUND
from workflows.effects.deployments import AdvanceRollout, EndRollout, RollBack, RolloutState
from workflows.rules.devices.rollout import has_failed, next_to_ask

MOST_FAILURES = 3
MOST_WORDS = 200
_PRESENT = (DeviceStatus.ACTIVE,)
"""The statuses in which a device follows an assignment at once."""
_LEFT_ALONE = (DeviceStatus.REMOVING, DeviceStatus.ARCHIVED)


@activity.defn
def advance_rollout(command: AdvanceRollout) -> RolloutState:
    """Ask as many more devices as the policy allows, and count all.

    A device that has a newer assignment by now leaves the deployment.
    Raises: NotFound.
    """
    with database().write() as session:
        row = _locked(session, command.deployment_id)
        _leave_superseded(session, row.id, command.at)
        request_ids: list[str] = []
        if command.asks and not has_failed(command.policy, counts := _counts(session, row.id)):
            request_ids = _ask(session, row, _waiting(session, row.id, present=False), command.at)
            most = next_to_ask(command.policy, counts)
            present = _waiting(session, row.id, present=True, most=most) if most else []
            request_ids += _ask(session, row, present, command.at)
        state = _state(session, row)
    relay_soon(request_ids)
    return state


@activity.defn
def end_rollout(command: EndRollout) -> RolloutState:
    """Ask no more devices; those that have not come to an end keep their assignment, as `left`.

    Raises: NotFound.
    """
    with database().write() as session:
        row = _locked(session, command.deployment_id)
        # Else a device could be asked for something newer meanwhile, and be left with this.
        _lock_asked(session, row.id)
        _leave_superseded(session, row.id, command.at)
        for target in _open(session, row.id):
            was_asked = target.state == TargetState.ASKED
            target.state = TargetState.LEFT if was_asked else TargetState.WITHDRAWN
            target.updated_at = command.at
            session.add(target)
        session.flush()
        return _state(session, row)


@activity.defn
def roll_back(command: RollBack) -> RolloutState:
    """Ask the devices that were asked to run what they were to run before; withdraw the others.

    A device with a newer assignment is left as it is, as is one that was asked already to go back.
    Raises: NotFound.
    """
    request_ids = []
    with database().write() as session:
        row = _locked(session, command.deployment_id)
        _leave_superseded(session, row.id, command.at)
        query = select(DeploymentTarget).where(
            DeploymentTarget.deployment_id == row.id,
            col(DeploymentTarget.state).not_in((TargetState.SUPERSEDED, TargetState.WITHDRAWN)),
        )
        for target in session.exec(query.order_by(col(DeploymentTarget.device_id))).all():
            request_id = _go_back(session, row, target, command.at)
            request_ids += [request_id] if request_id else []
        session.flush()
        state = _state(session, row)
    relay_soon(request_ids)
    return state


def supersede_waiting(session: Session, device_ids: Collection[str], at: datetime) -> list[str]:
    """Let devices leave the deployments that have not asked them yet: something newer is asked.

    Without that an older deployment would ask them later, and its assignment would be the newest.
    Call it before a device is locked, because deployments are locked first everywhere.
    Returns the outbox rows that wake these deployments.
    """
    is_waiting = (
        col(DeploymentTarget.device_id).in_(device_ids),
        col(DeploymentTarget.state) == TargetState.WAITING,
    )
    named = select(DeploymentTarget.deployment_id).where(*is_waiting)
    table = DeviceDeployment
    rows = select(table.id).where(col(table.id).in_(named)).order_by(col(table.id))
    found = session.exec(rows.with_for_update()).all()
    if not found:
        return []
    # What a deployment has asked until its row was locked is not waiting any more.
    left = {"state": TargetState.SUPERSEDED.value, "reason": NEWER, "updated_at": at}
    session.execute(update(DeploymentTarget).where(*is_waiting).values(left))
    return [wake(session, each, at) for each in found]


def _go_back(
    session: Session, row: DeviceDeployment, target: DeploymentTarget, at: datetime
) -> str | None:
    """Withdraw a target; return the outbox row that wakes its device, if that was asked."""
    device = session.get_one(Device, target.device_id, with_for_update=True)
    session.refresh(target, with_for_update=True)
    was_asked = target.assignment_number is not None
    target.state, target.updated_at = TargetState.WITHDRAWN, at
    session.add(target)
    if (
        not was_asked
        or device.status in _LEFT_ALONE
        or device.assignment_number != target.assignment_number
    ):
        return None
    assignment = DeviceAssignment(
        number=0,
        configuration_id=target.earlier_configuration_id,
        revision=target.earlier_revision,
        requested_by=f"the rollback of {row.name}",
    )
    return ask(session, device, assignment, at)


def _locked(session: Session, deployment_id: str) -> DeviceDeployment:
    row = session.get(DeviceDeployment, deployment_id, with_for_update=True)
    if row is None:
        raise ApplicationError(
            f"{deployment_id}: there is no such deployment", type=NOT_FOUND, non_retryable=True
        )
    return row


def _lock_asked(session: Session, deployment_id: str) -> None:
    """Lock the devices that the deployment has asked, in the order of their ids."""
    asked = select(DeploymentTarget.device_id).where(
        DeploymentTarget.deployment_id == deployment_id,
        DeploymentTarget.state == TargetState.ASKED,
    )
    devices = select(Device.id).where(col(Device.id).in_(asked)).order_by(col(Device.id))
    session.exec(devices.with_for_update()).all()


def _leave_superseded(session: Session, deployment_id: str, at: datetime) -> None:
    """Let devices leave the deployment that have a newer assignment, or are removed."""
    query = (
        select(DeploymentTarget)
        .join(Device, col(Device.id) == DeploymentTarget.device_id)
        .where(
            DeploymentTarget.deployment_id == deployment_id,
            DeploymentTarget.state == TargetState.ASKED,
            col(Device.assignment_number) > DeploymentTarget.assignment_number,
        )
    )
    gone = (
        select(DeploymentTarget)
        .join(Device, col(Device.id) == DeploymentTarget.device_id)
        .where(
            DeploymentTarget.deployment_id == deployment_id,
            col(DeploymentTarget.state).in_((TargetState.WAITING, TargetState.ASKED)),
            col(Device.status).in_(_LEFT_ALONE),
        )
    )
    for target in (*session.exec(query).all(), *session.exec(gone).all()):
        target.state, target.updated_at = TargetState.SUPERSEDED, at
        session.add(target)
    session.flush()


def _waiting(
    session: Session, deployment_id: str, *, present: bool, most: int | None = None
) -> Sequence[tuple[DeploymentTarget, Device]]:
    """The waiting devices, locked in the order of their ids.

    present: those that follow an assignment at once, else those that are away.
    """
    status = col(Device.status)
    is_present = status.in_(_PRESENT) if present else status.not_in((*_PRESENT, *_LEFT_ALONE))
    query = (
        select(DeploymentTarget, Device)
        .join(Device, col(Device.id) == DeploymentTarget.device_id)
        .where(
            DeploymentTarget.deployment_id == deployment_id,
            DeploymentTarget.state == TargetState.WAITING,
            is_present,
        )
        .order_by(col(Device.id))
        .with_for_update()
    )
    return session.exec(query if most is None else query.limit(most)).all()


def _ask(
    session: Session,
    row: DeviceDeployment,
    found: Sequence[tuple[DeploymentTarget, Device]],
    at: datetime,
) -> list[str]:
    """Write the deployment's assignment into the rows of these devices; return what wakes them."""
    assignment = DeviceAssignment(
        number=0,
        configuration_id=row.configuration_id,
        revision=row.revision,
        deployment_id=row.id,
        requested_by=row.requested_by,
    )
    request_ids = []
    for target, device in found:
        target.earlier_configuration_id, target.earlier_revision = _ran(device)
        request_ids.append(ask(session, device, assignment, at))
        target.state, target.assignment_number = TargetState.ASKED, device.assignment_number
        target.updated_at = at
        session.add(target)
    session.flush()
    return request_ids


def _ran(device: Device) -> tuple[str | None, int | None]:
    """The configuration and revision that the device runs, or is to run before anything newer."""
    if device.assignment_number > device.followed_number:
        return device.assignment_configuration_id, device.assignment_revision
    return device.running_configuration_id, device.running_revision


def _open(session: Session, deployment_id: str) -> Sequence[DeploymentTarget]:
    """Those without an end, locked as they are now."""
    return session.exec(
        select(DeploymentTarget)
        .where(
            DeploymentTarget.deployment_id == deployment_id,
            col(DeploymentTarget.state).in_((TargetState.WAITING, TargetState.ASKED)),
        )
        .order_by(col(DeploymentTarget.device_id))
        .with_for_update()
        .execution_options(populate_existing=True)
    ).all()


def _counts(session: Session, deployment_id: str) -> RolloutCounts:
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
            DeploymentTarget.state == TargetState.ASKED,
            col(Device.status).not_in(_PRESENT),
        )
    ).one()
    return RolloutCounts(away=away, **dict(counted))


def _line(reason: str | None) -> str:
    return (reason or "").partition("\n")[0][:MOST_WORDS]


def _state(session: Session, row: DeviceDeployment) -> RolloutState:
    failed = session.exec(
        select(Device.name, DeploymentTarget.reason)
        .join(DeploymentTarget, col(DeploymentTarget.device_id) == Device.id)
        .where(
            DeploymentTarget.deployment_id == row.id,
            DeploymentTarget.state == TargetState.FAILED,
        )
        .order_by(col(DeploymentTarget.updated_at))
        .limit(MOST_FAILURES)
    ).all()
    lines = tuple(f"{name}: {_line(reason)}" for name, reason in failed)
    return RolloutState(counts=_counts(session, row.id), failures=lines, sequence=row.sequence)
