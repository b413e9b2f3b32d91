"""Device assignments: what each shall run, written into its row, and read by its lifecycle."""

from datetime import datetime

from sqlalchemy import update
from sqlmodel import Session, col
from temporalio import activity

from activities.db.session import database
from activities.db.tables import DeploymentTarget, Device
from activities.outbox.requests import wake
from workflows.contracts.deployments import TargetState
from workflows.contracts.devices import DeviceAssignment, DeviceStatus
from workflows.effects.devices import AssignmentFound, FindAssignment

NEWER = "something newer was asked of it"


def next_number(before: int, at: datetime) -> int:
    """The number of a device's next assignment: the minute since 1970, or one more than before.

    So a device follows it also where it knows numbers that its row has not: from a time of which
    the database was restored without them, or of an earlier device on the same machine.
    """
    return max(before + 1, int(at.timestamp()) // 60)


def want(row: Device, status: DeviceStatus) -> None:
    """Set the wanted status of a locked row; a repeated request counts as another one."""
    row.wanted_status, row.wanted_revision = status, row.wanted_revision + 1


def ask(session: Session, row: Device, assignment: DeviceAssignment, at: datetime) -> str:
    """Write one with the next number into the locked row; return the outbox row of the wake.

    The number of the given assignment does not count. Deployments that have ended and left the
    device to follow theirs do so no longer.
    """
    row.assignment_number = next_number(row.assignment_number, at)
    row.assignment_configuration_id, row.assignment_revision = (
        assignment.configuration_id,
        assignment.revision,
    )
    row.assignment_deployment_id, row.assignment_by, row.assignment_at = (
        assignment.deployment_id,
        assignment.requested_by,
        at,
    )
    session.add(row)
    session.execute(
        update(DeploymentTarget)
        .where(
            col(DeploymentTarget.device_id) == row.id,
            col(DeploymentTarget.state) == TargetState.LEFT,
        )
        .values(state=TargetState.SUPERSEDED.value, reason=NEWER, updated_at=at)
    )
    return wake(session, row.id, at)


@activity.defn
def find_assignment(command: FindAssignment) -> AssignmentFound:
    """The wanted status, if the lifecycle has not followed it yet, and the newest assignment."""
    with database().read() as session:
        row = session.get(Device, command.device_id)
    if row is None:
        return AssignmentFound()
    is_new = row.wanted_status is not None and row.wanted_revision > row.seen_revision
    return AssignmentFound(
        status=DeviceStatus(row.wanted_status) if is_new and row.wanted_status else None,
        revision=row.wanted_revision,
        assignment=_assignment_of(row) if row.assignment_number else None,
        sequence=row.sequence,
    )


def _assignment_of(row: Device) -> DeviceAssignment:
    return DeviceAssignment(
        number=row.assignment_number,
        configuration_id=row.assignment_configuration_id,
        revision=row.assignment_revision,
        deployment_id=row.assignment_deployment_id,
        requested_by=row.assignment_by,
    )
