"""The wishes of devices: what each shall run, written into its row, and read by its lifecycle."""

from datetime import datetime

from sqlmodel import Session
from temporalio import activity

from activities.db.session import database
from activities.db.tables import Device
from activities.outbox.requests import wake
from workflows.contracts.devices import DeviceStatus, DeviceWish
from workflows.effects.devices import DeviceWishesFound, FindDeviceWishes


def want(row: Device, status: DeviceStatus) -> None:
    """Set the wanted status of a locked row; a repeated request counts as another one."""
    row.wanted_status, row.wanted_revision = status, row.wanted_revision + 1


def ask(session: Session, row: Device, wish: DeviceWish, at: datetime) -> str:
    """Write a wish with the next number into a locked row; return the outbox row that wakes it.

    The number of the given wish does not count.
    """
    row.wish_number += 1
    row.wish_configuration_id, row.wish_revision = wish.configuration_id, wish.revision
    row.wish_deployment_id, row.wish_by, row.wish_at = wish.deployment_id, wish.requested_by, at
    session.add(row)
    return wake(session, row.id, at)


@activity.defn
def find_device_wishes(command: FindDeviceWishes) -> DeviceWishesFound:
    """The wanted status, if the lifecycle has not followed it yet, and the newest wish."""
    with database().read() as session:
        row = session.get(Device, command.device_id)
    if row is None:
        return DeviceWishesFound()
    is_new = row.wanted_status is not None and row.wanted_revision > row.seen_revision
    return DeviceWishesFound(
        status=DeviceStatus(row.wanted_status) if is_new and row.wanted_status else None,
        revision=row.wanted_revision,
        wish=_wish_of(row) if row.wish_number else None,
        sequence=row.sequence,
    )


def _wish_of(row: Device) -> DeviceWish:
    return DeviceWish(
        number=row.wish_number,
        configuration_id=row.wish_configuration_id,
        revision=row.wish_revision,
        deployment_id=row.wish_deployment_id,
        requested_by=row.wish_by,
    )
