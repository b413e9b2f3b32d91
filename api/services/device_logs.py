"""The logs of devices: which device is reached, by whom."""

from activities.db import tables
from activities.db.session import database
from activities.nodes.addresses import address_of
from api.authorization import Caller, Needs, caller_by_key
from api.problems import Problem
from api.services.ownership import own
from api.sessions.switchboard import DevicePlace
from workflows.contracts.devices import DeviceStatus

_REACHED = (DeviceStatus.ACTIVE, DeviceStatus.MAINTENANCE)


def place_of(caller: Caller, device_id: str) -> DevicePlace:
    """The device, which its site reaches and to which something was deployed. Blocking.

    Raises: Problem `not-found`; `conflict`, when there is no log that can be read.
    """
    with database().read() as session:
        row = own(session, tables.Device, device_id, caller)
        region = session.get_one(tables.Region, row.region_id)
    asked = f"device {row.name} of region {region.name}: asked for the log of what it runs"
    if row.status not in _REACHED or row.host is None:
        reason = f": {row.status_reason}" if row.status_reason else ""
        raise Problem("conflict", f"{asked}, found it {row.status}{reason}")
    if not row.assignment_number:
        raise Problem("conflict", f"{asked}, found that nothing was ever deployed to it")
    return DevicePlace(f"device {row.name}", row.account_id, address_of(row, region))


def check(caller: Caller, device_id: str) -> None:
    """Whether a log may be followed on: who holds the key now still has the device. Blocking.

    Raises: Problem.
    """
    now = caller_by_key(caller.key_id, caller.account_id)
    Needs("devices:read").check(now)
    with database().read() as session:
        own(session, tables.Device, device_id, now)
