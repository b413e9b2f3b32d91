"""Devices: their responses and their changes."""

from collections.abc import Iterable, Sequence
from datetime import UTC
from itertools import chain

from sqlmodel import Session, col, select

from activities.billing.payers import payer_of
from activities.billing.runway import lock_balance, recompute_runway
from activities.db import tables
from activities.db.ids import new_id
from activities.devices.assignments import ask, want
from activities.devices.rollouts import supersede_waiting
from activities.nodes.join_tokens import announced
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import devices as schemas
from api.schemas.nodes import NodePreparation, NodeRequirement
from api.services.account_limits import check_limit
from api.services.lifecycles import GONE, remove, wrong_state
from api.services.minions import must_be_unknown
from api.services.ownership import lifecycle, own, own_locked
from api.services.people import People
from workflows.contracts.deployments import TargetState
from workflows.contracts.devices import (
    DeviceAction,
    DeviceAssignment,
    DeviceStatus,
    InferenceStatus,
    OutputBacklog,
)
from workflows.contracts.nodes import Hardware, Preparation, Requirement
from workflows.contracts.statuses import NodeStatus, RegionStatus
from workflows.rules.billing.device_fees import device_day_microcredits
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.nodes.requirements import STORAGE

_SAME = (
    "region_id", "minion_id", "upnp", "port", "user", "model", "configuration_id", "deployed_at",
    "deployed_by", "inference_reason", "exit_code", "removed_at",
)  # fmt: skip
_REACHED = (DeviceStatus.ACTIVE, DeviceStatus.MAINTENANCE)
WANTED = {
    DeviceAction.ACTIVATE: DeviceStatus.ACTIVE,
    DeviceAction.MAINTENANCE: DeviceStatus.MAINTENANCE,
}
"""The status that an action asks for; the other actions ask for none."""
_INFINITIVES = {
    DeviceAction.ACTIVATE: "be activated",
    DeviceAction.MAINTENANCE: "be put in maintenance",
    DeviceAction.REBOOT: "be rebooted",
}


def device_responses(
    session: Session, caller: Caller, rows: Sequence[tables.Device]
) -> list[schemas.Device]:
    """The devices as a caller may see them, each with what is wanted, requested and running."""
    named = {
        each
        for row in rows
        for each in (
            row.configuration_id,
            row.assignment_configuration_id,
            row.running_configuration_id,
        )
        if each is not None
    }
    configurations = _configurations(session, named)
    texts = [(row.deployed_by, row.assignment_by, row.status_reason) for row in rows]
    people = People(session, caller, chain.from_iterable(texts))
    return [_response(row, configurations, people) for row in rows]


def device_response(session: Session, caller: Caller, row: tables.Device) -> schemas.Device:
    return device_responses(session, caller, [row])[0]


def _configurations(session: Session, ids: Iterable[str]) -> dict[str, tables.DeviceConfiguration]:
    table = tables.DeviceConfiguration
    return {row.id: row for row in session.exec(select(table).where(col(table.id).in_(ids)))}


Known = dict[str, tables.DeviceConfiguration]


def _response(row: tables.Device, known: Known, people: People) -> schemas.Device:
    hardware = Hardware.model_validate(row.hardware).model_dump() if row.hardware else None
    preparation = Preparation.model_validate(row.preparation) if row.preparation else None
    requirements = [Requirement.model_validate(found) for found in row.requirements]
    latest = known[row.configuration_id].latest_revision if row.configuration_id else None
    wanted = _reference(known, row.configuration_id, latest)
    running = _reference(known, row.running_configuration_id, row.running_revision)
    return schemas.Device(
        **lifecycle(row) | {"status_reason": people.named(row.status_reason)},
        **{name: getattr(row, name) for name in _SAME},
        deployed_by_name=people.named(row.deployed_by),
        address=row.host,
        hardware=schemas.DeviceHardware(**hardware) if hardware else None,
        requirements=[NodeRequirement(**found.model_dump()) for found in requirements],
        preparation=NodePreparation(**preparation.model_dump()) if preparation else None,
        wanted=wanted,
        requested=_requested(row, known, people),
        running=running,
        is_deployed=wanted == running,
        inference_status=InferenceStatus(row.inference_status),
        output_backlog=_backlog(row),
    )


def _backlog(row: tables.Device) -> schemas.DeviceOutputBacklog | None:
    if row.output_backlog is None:
        return None
    found = OutputBacklog.model_validate(row.output_backlog)
    return schemas.DeviceOutputBacklog(**found.model_dump() | {"away": found.away or None})


def _reference(
    known: Known, configuration_id: str | None, revision: int | None
) -> schemas.DeviceRevisionReference | None:
    if configuration_id is None or revision is None:
        return None
    return schemas.DeviceRevisionReference(
        configuration_id=configuration_id,
        configuration_name=known[configuration_id].name,
        revision=revision,
    )


def _requested(row: tables.Device, known: Known, people: People) -> schemas.DeviceRequested | None:
    if not row.assignment_number or row.assignment_at is None:
        return None
    return schemas.DeviceRequested(
        revision=_reference(known, row.assignment_configuration_id, row.assignment_revision),
        deployment_id=row.assignment_deployment_id,
        requested_by=row.assignment_by,
        requested_by_name=people.named(row.assignment_by) or "",
        at=row.assignment_at,
        followed=row.followed_number >= row.assignment_number,
    )


def add_device(context: ChangeContext, asked: schemas.DeviceCreation) -> schemas.Device:
    """Add a machine as a device.

    Raises: Problem `not-found`, when the region is not the account's; `conflict`, when the region
    takes no devices or has a device of this name, or a node or device of the account has this
    minion id; `limit-reached`.
    """
    region = own_locked(context.session, tables.Region, asked.region_id, context.caller)
    _check_region(context.session, region)
    must_be_unknown(context.session, asked.minion_id, region.account_id)
    _check_name(context.session, region, asked.name)
    check_limit(context, tables.Device)
    payer_id = payer_of(context.session.get_one(tables.Account, context.caller.account_id))
    lock_balance(context.session, payer_id)
    known = announced(context.session, region.id, asked.minion_id)
    place: tables.JoinToken | None = known if asked.address is None else None
    row = tables.Device(
        id=new_id("dev"),
        account_id=context.caller.account_id,
        name=asked.name,
        region_id=region.id,
        minion_id=asked.minion_id,
        upnp=asked.upnp,
        host=place.host if place else asked.address,
        port=place.port if place else asked.port,
        user=place.user if place else asked.user,
        hardware=None,
        requirements=[],
        preparation=None,
        created_at=context.now,
        updated_at=context.now,
    )
    context.create(row)
    added = device_day_microcredits(1, context.now.astimezone(UTC).date()) // 24
    context.requests += recompute_runway(context.session, payer_id, added=added)
    return device_response(context.session, context.caller, row)


def must_have_central_storage(region: tables.Region) -> None:
    """Refuse a region where no device can ever be, as its kind and its storage mode never change.

    Raises: Problem `conflict`.
    """
    is_cloud = traits_of(region.provider_kind).is_cloud
    if is_cloud or region.storage_mode != "central":
        found = "is in a cloud" if is_cloud else "has local storage"
        raise Problem(
            "conflict",
            f"region {region.name}: {found}; devices are in regions of machines you own with "
            "central storage",
        )


def _check_name(session: Session, region: tables.Region, name: str) -> None:
    """Check that no device of the region, which is locked, has this name.

    Raises: Problem `conflict`.
    """
    table = tables.Device
    same = select(table).where(
        table.region_id == region.id,
        table.name == name,
        col(table.status) != DeviceStatus.ARCHIVED,
    )
    found = session.exec(same).first()
    if found is not None:
        detail = f"device {name}: {found.id} of region {region.name} has this name"
        raise Problem("conflict", detail)


def _check_region(session: Session, region: tables.Region) -> None:
    """Raises: Problem `conflict`."""
    if region.status not in (RegionStatus.HEALTHY, RegionStatus.OFFLINE):
        raise wrong_state("region", region, "healthy to take devices")
    must_have_central_storage(region)
    nodes = session.exec(
        select(tables.Node).where(
            tables.Node.region_id == region.id, tables.Node.status != NodeStatus.ARCHIVED
        )
    )
    stores = [node for node in nodes if STORAGE in node.services]
    if not any(node.status == NodeStatus.ACTIVE for node in stores):
        seen = f"{stores[0].name}, which is {stores[0].status}" if stores else "none"
        detail = f"region {region.name}: needs an active storage node for devices, found {seen}"
        raise Problem("conflict", detail)


def set_configuration(
    context: ChangeContext, device_id: str, asked: schemas.DeviceSetting
) -> schemas.Device:
    """Set the configuration of a device, which a later deployment brings to it.

    Raises: Problem `not-found`; `invalid-request`, when there is no such configuration in the
    device's region; `conflict`, when the device is being removed.
    """
    row = _changeable(context, device_id)
    if asked.configuration_id is not None:
        # Locked, so that it is not removed before the device has it.
        found = context.session.get(
            tables.DeviceConfiguration, asked.configuration_id, with_for_update=True
        )
        _check_configuration(row, asked.configuration_id, found)
    row.configuration_id, row.updated_at = asked.configuration_id, context.now
    context.session.add(row)
    context.session.flush()
    return device_response(context.session, context.caller, row)


def _check_configuration(
    row: tables.Device, configuration_id: str, found: tables.DeviceConfiguration | None
) -> None:
    """Raises: Problem `invalid-request`."""
    if found is None or found.account_id != row.account_id or found.removed_at is not None:
        rule = "is a device configuration of this account: not found"
        raise invalid(field_error("configuration_id", rule, configuration_id))
    if found.region_id != row.region_id:
        rule = f"is of the device's region {row.region_id}: this one is of {found.region_id}"
        raise invalid(field_error("configuration_id", rule, configuration_id))


def act(context: ChangeContext, device_id: str, action: DeviceAction) -> schemas.Device:
    """Request an action of a device.

    A stop holds also for a device that is away, which follows it when it is back; it leaves the
    deployments that have not asked it yet.
    Raises: Problem `not-found`; `conflict`, when the device has another status.
    """
    if action is DeviceAction.STOP:
        own(context.session, tables.Device, device_id, context.caller)
        context.requests += supersede_waiting(context.session, [device_id], context.now)
    row = _changeable(context, device_id)
    if action is DeviceAction.STOP:
        _stop(context, row)
        return device_response(context.session, context.caller, row)
    if row.status not in _REACHED:
        raise wrong_state("device", row, f"active or maintenance to {_INFINITIVES[action]}")
    if action is DeviceAction.REBOOT:
        context.tell(row.id, "reboot")
        return device_response(context.session, context.caller, row)
    want(row, WANTED[action])
    context.session.add(row)
    context.wake(row.id)
    return device_response(context.session, context.caller, row)


def _stop(context: ChangeContext, row: tables.Device) -> None:
    """Ask a device to run nothing; the deployment that waits for it is woken to see so."""
    by = context.caller.user_id
    if row.assignment_deployment_id is not None:
        target = context.session.get(
            tables.DeploymentTarget, (row.assignment_deployment_id, row.id)
        )
        if target is not None and TargetState(target.state).is_open:
            context.wake(row.assignment_deployment_id)
    assignment = DeviceAssignment(number=0, requested_by=by)
    context.requests.append(ask(context.session, row, assignment, context.now))
    context.session.flush()


def remove_device(context: ChangeContext, device_id: str) -> schemas.Device:
    """Remove a device; its inference ends. A second call changes nothing.

    Raises: Problem `not-found`.
    """
    row = own_locked(context.session, tables.Device, device_id, context.caller)
    remove(context, row, force=False)
    return device_response(context.session, context.caller, row)


def _changeable(context: ChangeContext, device_id: str) -> tables.Device:
    row = own_locked(context.session, tables.Device, device_id, context.caller)
    if row.status in GONE:
        raise wrong_state("device", row, "there to be changed")
    return row
