"""Notifications read from entries of Google's audit log about machines."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from activities.providers.base import Notification
from activities.providers.gcp.names import PREFIX
from workflows.contracts.machines import MachineNotification

METHOD = "compute.instances."
"""In the method name of an API call, this text follows `v1.` or `beta.`; the method name of an
action of Google itself starts with it."""
ENDS: Mapping[str, str] = {
    "preempted": "it was preempted",
    "hostError": "its host has failed",
    "guestTerminate": "it has shut itself down",
    "terminateOnHostMaintenance": "it was ended for the maintenance of its host",
    "delete": "it was deleted",
    "stop": "it was stopped",
}
BY_SOMEBODY = frozenset({"delete", "stop"})


def read_notification(data: bytes, *, receipt: str, message_id: str) -> Notification:
    """The notification in a message; without content when the message is unreadable or irrelevant.

    An operation has two entries, at its start and at its end. Both count, in any order.
    """
    of_no_use = Notification(receipt=receipt, id=message_id)
    try:
        entry = json.loads(data)
        payload = entry["protoPayload"]
        event = str(payload["methodName"]).partition(METHOD)[2]
        name = str(payload["resourceName"]).rpartition("/instances/")[2]
        if event not in ENDS or not name.startswith(PREFIX) or _has_failed(entry):
            return of_no_use
        content = MachineNotification(
            what=_description(event, payload),
            at=datetime.fromisoformat(entry["timestamp"]),
            provider_machine_id=str(entry["resource"]["labels"].get("instance_id", "")),
        )
        entry_id = str(entry.get("insertId") or message_id)
    except (ValueError, LookupError, TypeError, AttributeError):
        return of_no_use
    return Notification(receipt=receipt, id=entry_id, machine_name=name, content=content)


def _has_failed(entry: Any) -> bool:
    """Whether the request was refused, or its operation ended with an error: nothing happened."""
    return entry.get("severity") == "ERROR" or not entry.get("operation")


def _description(event: str, payload: Any) -> str:
    principal = payload.get("authenticationInfo", {}).get("principalEmail")
    by = f" by {principal}" if principal and event in BY_SOMEBODY else ""
    return f"{ENDS[event]}{by}"
