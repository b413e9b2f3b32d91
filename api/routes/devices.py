"""Devices: machines at the edge, each with one model that runs for ever."""

from typing import Annotated

from fastapi import APIRouter, Depends
from sqlalchemy import ColumnElement
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, page
from api.schemas.devices import Device, DeviceCreation, DevicePage, DeviceSetting
from api.services import devices
from api.services.lifecycles import of_status, status_code
from api.services.ownership import own
from workflows.contracts.devices import DeviceAction, DeviceStatus, InferenceStatus

router = APIRouter(prefix="/v1/devices", tags=["devices"])
Reader = Annotated[Caller, Depends(Needs("devices:read"))]
Writer = Annotated[Change, changing("devices:write")]
_ACTIONS = {
    DeviceAction.ACTIVATE: ("activate_device", "Let a device in maintenance follow deployments."),
    DeviceAction.MAINTENANCE: (
        "maintain_device",
        "Put a device in maintenance: what it runs goes on, and deployments wait.",
    ),
    DeviceAction.REBOOT: ("reboot_device", "Reboot a device; it then runs what it ran before."),
    DeviceAction.STOP: (
        "stop_device",
        "Stop what a device runs, also for its next start; one that is away does so once back.",
    ),
}


def _filters(
    region_id: str | None = None,
    status: str | None = None,
    configuration_id: str | None = None,
    inference_status: str | None = None,
) -> list[ColumnElement[bool]]:
    """The conditions of a list; archived devices are in it only when asked for by status."""
    table = tables.Device
    wanted = (
        (col(table.region_id), region_id),
        (col(table.configuration_id), configuration_id),
        (
            col(table.inference_status),
            status_code(inference_status, InferenceStatus, "inference_status"),
        ),
    )
    return [
        of_status(table, status, DeviceStatus),
        *(column == value for column, value in wanted if value is not None),
    ]


@router.get("", operation_id="list_devices")
def list_devices(
    caller: Reader,
    paging: Paging,
    filters: Annotated[list[ColumnElement[bool]], Depends(_filters)],
) -> DevicePage:
    """The account's devices; archived ones only when asked for by status."""
    table = tables.Device
    rows = select(table).where(table.account_id == caller.account_id, *filters)
    with database().read() as session:
        view = (col(table.id), lambda found: devices.device_responses(session, caller, found))
        return page(session, DevicePage, rows, paging, view)


@router.post("", status_code=202, operation_id="add_device")
async def add_device(asked: DeviceCreation, change: Writer) -> Device:
    """Add a machine as a device by its minion id.

    The platform reaches a machine without an address once the machine has announced itself.
    """
    return await change.apply(Device, lambda context: devices.add_device(context, asked))


@router.get("/{device_id}", operation_id="get_device")
def get_device(device_id: str, caller: Reader) -> Device:
    with database().read() as session:
        row = own(session, tables.Device, device_id, caller)
        return devices.device_response(session, caller, row)


@router.patch("/{device_id}", operation_id="change_device")
async def change_device(device_id: str, asked: DeviceSetting, change: Writer) -> Device:
    """Set the configuration of a device; what it runs changes with the next deployment."""
    return await change.apply(
        Device, lambda context: devices.set_configuration(context, device_id, asked)
    )


def _add_action(action: DeviceAction) -> None:
    operation_id, summary = _ACTIONS[action]

    async def act(device_id: str, change: Writer) -> Device:
        return await change.apply(Device, lambda context: devices.act(context, device_id, action))

    status = devices.WANTED.get(action)
    router.add_api_route(
        f"/{{device_id}}/{action.value}",
        act,
        methods=["POST"],
        status_code=202,
        operation_id=operation_id,
        name=operation_id,
        description=summary,
        openapi_extra={} if status is None else {"x-resulting-status": status.value},
    )


for _action in DeviceAction:
    _add_action(_action)


@router.delete("/{device_id}", status_code=202, operation_id="remove_device")
async def remove_device(device_id: str, change: Writer) -> Device:
    """Remove a device: its inference ends, and what it has of the platform is removed there."""
    return await change.apply(Device, lambda context: devices.remove_device(context, device_id))
