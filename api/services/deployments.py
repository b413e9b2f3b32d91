"""Deployments: their responses and their changes."""

from collections.abc import Sequence
from itertools import chain

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.devices.rollouts import supersede_waiting
from activities.devices.specs import document_of
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import deployments as schemas
from api.services.account_limits import check_limit
from api.services.device_configurations import revision_of
from api.services.job_submissions import must_have_credits
from api.services.lifecycles import GONE, wrong_state
from api.services.ownership import lifecycle, own_locked
from api.services.people import People
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.deployments import (
    DeploymentAction,
    DeploymentOrder,
    DeploymentStatus,
    RolloutCounts,
    RolloutPolicy,
    TargetState,
)
from workflows.rules.counts import some_of

MOST_DEVICES = 10_000
_ORDERS = {
    DeploymentAction.PAUSE: (DeploymentStatus.NEW, DeploymentStatus.ROLLING_OUT),
    DeploymentAction.RESUME: (DeploymentStatus.PAUSED,),
    DeploymentAction.STOP: (
        DeploymentStatus.NEW,
        DeploymentStatus.ROLLING_OUT,
        DeploymentStatus.PAUSED,
    ),
    DeploymentAction.ROLL_BACK: (
        DeploymentStatus.NEW,
        DeploymentStatus.ROLLING_OUT,
        DeploymentStatus.PAUSED,
    ),
}
"""The statuses in which a deployment takes each order."""


def deployment_responses(
    session: Session, caller: Caller, rows: Sequence[tables.DeviceDeployment]
) -> list[schemas.Deployment]:
    """The deployments as a caller may see them."""
    texts = [(row.requested_by, row.status_reason) for row in rows]
    people = People(session, caller, chain.from_iterable(texts))
    return [_response(row, people) for row in rows]


def deployment_response(
    session: Session, caller: Caller, row: tables.DeviceDeployment
) -> schemas.Deployment:
    return deployment_responses(session, caller, [row])[0]


def _response(row: tables.DeviceDeployment, people: People) -> schemas.Deployment:
    counts = RolloutCounts.model_validate(row.counts, extra="ignore")
    policy = RolloutPolicy.model_validate(row.policy, extra="ignore")
    shown = counts.model_dump(exclude={"lost"})  # They are among the failed.
    return schemas.Deployment(
        **lifecycle(row) | {"status_reason": people.named(row.status_reason)},
        region_id=row.region_id,
        configuration_id=row.configuration_id,
        revision=row.revision,
        policy=schemas.DeploymentPolicy(**policy.model_dump()),
        counts=schemas.DeploymentCounts(**shown, total=counts.total),
        deadline=row.deadline,
        requested_by=row.requested_by,
        requested_by_name=people.named(row.requested_by) or "",
    )


def device_responses(
    session: Session, rows: Sequence[tables.DeploymentTarget]
) -> list[schemas.DeploymentDevice]:
    """The devices of a deployment."""
    ids = [row.device_id for row in rows]
    named = session.exec(select(tables.Device).where(col(tables.Device.id).in_(ids)))
    devices = {device.id: device for device in named}
    return [
        schemas.DeploymentDevice(
            device_id=row.device_id,
            name=devices[row.device_id].name,
            status=devices[row.device_id].status,
            state=TargetState(row.state),
            reason=row.reason,
            earlier_configuration_id=row.earlier_configuration_id,
            earlier_revision=row.earlier_revision,
            updated_at=row.updated_at,
        )
        for row in rows
    ]


def create_deployment(
    context: ChangeContext, asked: schemas.DeploymentCreation
) -> schemas.Deployment:
    """Deploy a revision of a configuration to devices that are set to it.

    They leave older deployments that have not asked them yet.
    Raises: Problem `not-found`, for a configuration or a revision; `invalid-request`, for devices
    that are not there, or have no or another configuration; `conflict`, when there are no devices,
    or a model or checkpoint is not ready; `insufficient-credits`; `limit-reached`.
    """
    if asked.rolls_back and asked.max_failures is None:
        rule = "needs max_failures, which says after how many failed devices all return"
        raise invalid(field_error("rolls_back", rule, asked.rolls_back))
    configuration = _configuration(context, asked)
    number = asked.revision or configuration.latest_revision
    revision = revision_of(context.session, configuration.id, number)
    _must_be_ready(context.session, revision)
    device_ids = _devices(context.session, configuration, asked.device_ids)
    must_have_credits(context.session, context.caller.account_id, "deploy to devices")
    check_limit(context, tables.DeviceDeployment)
    row = tables.DeviceDeployment(
        id=new_id("dpl"),
        account_id=context.caller.account_id,
        name=f"{configuration.name} {number}",
        region_id=configuration.region_id,
        configuration_id=configuration.id,
        revision=number,
        policy=RolloutPolicy(
            max_unavailable=asked.max_unavailable,
            max_failures=asked.max_failures,
            rolls_back=asked.rolls_back,
            limit_s=asked.limit_s,
        ).model_dump(mode="json"),
        counts=RolloutCounts(waiting=len(device_ids)).model_dump(mode="json"),
        requested_by=context.caller.user_id,
        created_at=context.now,
        updated_at=context.now,
    )
    context.requests += supersede_waiting(context.session, device_ids, context.now)
    context.create(row)
    context.session.add_all(
        tables.DeploymentTarget(deployment_id=row.id, device_id=each, updated_at=context.now)
        for each in device_ids
    )
    return deployment_response(context.session, context.caller, row)


def _configuration(
    context: ChangeContext, asked: schemas.DeploymentCreation
) -> tables.DeviceConfiguration:
    """The configuration, locked so that it is not removed before the deployment names it.

    Raises: Problem `not-found`, `invalid-request`.
    """
    configuration_id = asked.configuration_id
    if configuration_id is None:
        configuration_id = _common_configuration(context, asked.device_ids)
    table = tables.DeviceConfiguration
    row = own_locked(context.session, table, configuration_id, context.caller)
    if row.removed_at is not None:
        raise Problem("conflict", f"device configuration {row.name}: is removed")
    return row


def _common_configuration(context: ChangeContext, device_ids: tuple[str, ...] | None) -> str:
    """The configuration that all named devices have. Raises: Problem `invalid-request`."""
    if not device_ids:
        rule = "is needed, or device_ids: the configuration whose devices are meant"
        raise invalid(field_error("configuration_id", rule))
    device = tables.Device
    query = select(device.configuration_id).where(
        col(device.id).in_(device_ids), device.account_id == context.caller.account_id
    )
    found = context.session.exec(query.distinct()).all()
    if len(found) == 1 and found[0] is not None:
        return found[0]
    if not found:
        rule = "are devices of this account: not found"
        raise invalid(field_error("device_ids", rule, list(device_ids)))
    named = some_of(sorted(each or "none" for each in found))
    rule = f"are all set to the same configuration: found {named}"
    raise invalid(field_error("device_ids", rule, None))


def _devices(
    session: Session, configuration: tables.DeviceConfiguration, named: tuple[str, ...] | None
) -> list[str]:
    """The ids of the devices, each once. Raises: Problem `invalid-request`, `conflict`."""
    device = tables.Device
    is_set = (
        device.configuration_id == configuration.id,
        col(device.status).not_in(GONE),
    )
    if named is None:
        query = select(device.id).where(*is_set).order_by(col(device.id)).limit(MOST_DEVICES + 1)
        found = list(session.exec(query).all())
        if not found:
            detail = f"device configuration {configuration.name}: no device is set to it"
            raise Problem("conflict", detail)
        if len(found) > MOST_DEVICES:
            detail = f"device configuration {configuration.name}: is on more than {MOST_DEVICES}"
            raise Problem("conflict", f"{detail} devices: name up to 1000 at a time")
        return found
    there = set(session.exec(select(device.id).where(*is_set, col(device.id).in_(named))).all())
    wrong = [
        field_error(
            f"device_ids.{index}",
            f"is a device that is set to configuration {configuration.name} "
            f"({configuration.id}), and not being removed: not found",
            each,
        )
        for index, each in enumerate(named)
        if each not in there
    ]
    if wrong:
        raise invalid(*wrong)
    return sorted(there)


def _must_be_ready(session: Session, revision: tables.DeviceRevision) -> None:
    """Refuse a revision whose model or checkpoints are not ready. Raises: Problem `conflict`."""
    document = document_of(revision)
    ids = [*document.checkpoints, *([document.model.id] if document.model else [])]
    for each in ids:
        row = session.get(tables.table_of_artifact(each), each)
        found = "not there any more" if row is None else row.status
        if found != ArtifactStatus.READY:
            detail = f"{each}: is {found}; must be ready to be deployed"
            raise Problem("conflict", f"revision {revision.revision}: {detail}")


def order(
    context: ChangeContext, deployment_id: str, action: DeploymentAction
) -> schemas.Deployment:
    """Pause, resume, stop or roll back a deployment that is under way.

    Raises: Problem `not-found`; `conflict`, when it has another status.
    """
    row = own_locked(context.session, tables.DeviceDeployment, deployment_id, context.caller)
    allowed = _ORDERS[action]
    if row.status not in allowed:
        words = action.value.replace("_", " ")
        raise wrong_state("deployment", row, f"{' or '.join(allowed)} to {words}")
    context.tell(
        row.id, "order", DeploymentOrder(action=action, requested_by=context.caller.user_id)
    )
    return deployment_response(context.session, context.caller, row)
