"""The rollout of a deployment: its devices are asked in steps, counted, and left or rolled back.

Each activity is one transaction that holds the row of its deployment, and changes at most `BATCH`
of its devices; it says whether there are more. Devices are locked in the order of their ids, and
targets after their devices, as a step of a device does.
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import DeploymentTarget, Device, DeviceDeployment
from activities.devices.assignments import NEWER, ask
from activities.devices.targets import (
    BATCH,
    LEFT_ALONE,
    counts_of,
    leaves,
    open_targets,
    settle,
    waiting,
)
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import wake
from workflows.contracts.deployments import TargetState
from workflows.contracts.devices import DeviceAssignment
from workflows.contracts.errors import NOT_FOUND
from workflows.effects.deployments import AdvanceRollout, EndRollout, RollBack, RolloutState
from workflows.rules.devices.rollout import may_ask, next_to_ask

MOST_FAILURES = 3
MOST_CHARACTERS = 200


@activity.defn
def advance_rollout(command: AdvanceRollout) -> RolloutState:
    """Ask as many more devices as the policy allows, or leave those that are away; count all.

    A device that has a newer assignment or another configuration by now leaves the deployment.
    Raises: NotFound.
    """
    with database().write() as session:
        row = _locked(session, command.deployment_id)
        has_more = settle(session, row, command.at)
        request_ids: list[str] = []
        policy, accepted = command.policy, command.accepted_lost
        if command.asks and may_ask(policy, counts := counts_of(session, row.id), accepted):
            is_left = command.leaves_absent
            most = min(BATCH, BATCH if is_left else next_to_ask(policy, counts, accepted))
            found = waiting(session, row, present=not is_left, most=most) if most else []
            state = TargetState.LEFT if is_left else TargetState.ASKED
            request_ids = _ask(session, row, found, state, command.at)
            has_more |= len(found) == BATCH
        result = _state(session, row, has_more=has_more)
    relay_soon(request_ids)
    return result


@activity.defn
def end_rollout(command: EndRollout) -> RolloutState:
    """Ask no more devices; those that were asked keep their assignment, as `left`.

    Raises: NotFound.
    """
    with database().write() as session:
        row = _locked(session, command.deployment_id)
        targets = open_targets(session, row.id)
        for target, device in targets:
            if not leaves(row, target, device, command.at):
                was_asked = target.state == TargetState.ASKED
                target.state = TargetState.LEFT if was_asked else TargetState.WITHDRAWN
                target.updated_at = command.at
            session.add(target)
        session.flush()
        return _state(session, row, has_more=len(targets) == BATCH)


@activity.defn
def roll_back(command: RollBack) -> RolloutState:
    """Ask the devices that were asked to run what they were to run before; withdraw the others.

    A device with a newer assignment is left as it is, as is one that was asked already to go back.
    Raises: NotFound.
    """
    request_ids = []
    with database().write() as session:
        row = _locked(session, command.deployment_id)
        query = select(DeploymentTarget).where(
            DeploymentTarget.deployment_id == row.id,
            col(DeploymentTarget.state).not_in((TargetState.SUPERSEDED, TargetState.WITHDRAWN)),
        )
        found = session.exec(query.order_by(col(DeploymentTarget.device_id)).limit(BATCH)).all()
        for target in found:
            request_id = _go_back(session, row, target, command.at)
            request_ids += [request_id] if request_id else []
        session.flush()
        state = _state(session, row, has_more=len(found) == BATCH)
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
    is_open = TargetState(target.state).is_open
    if target.state == TargetState.SUPERSEDED or (is_open and leaves(row, target, device, at)):
        session.add(target)
        return None
    was_asked = target.assignment_number is not None
    target.state, target.updated_at = TargetState.WITHDRAWN, at
    session.add(target)
    if (
        not was_asked
        or device.status in LEFT_ALONE
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


def _ask(
    session: Session,
    row: DeviceDeployment,
    found: Sequence[tuple[DeploymentTarget, Device]],
    state: TargetState,
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
        target.state, target.assignment_number = state, device.assignment_number
        target.updated_at = at
        session.add(target)
    session.flush()
    return request_ids


def _ran(device: Device) -> tuple[str | None, int | None]:
    """The configuration and revision that the device runs, or is to run before anything newer."""
    if device.assignment_number > device.followed_number:
        return device.assignment_configuration_id, device.assignment_revision
    return device.running_configuration_id, device.running_revision


def _line(reason: str | None) -> str:
    return (reason or "").partition("\n")[0][:MOST_CHARACTERS]


def _state(session: Session, row: DeviceDeployment, *, has_more: bool) -> RolloutState:
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
    return RolloutState(
        counts=counts_of(session, row.id), failures=lines, has_more=has_more, sequence=row.sequence
    )
