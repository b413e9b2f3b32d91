"""Entries of Google's audit log about machines, read for what their workflows need to know."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from activities.providers.base import Notification
from activities.providers.gcp.names import PREFIX
from workflows.contracts.machines import MachineNews

METHOD = "compute.instances."
"""Of a call it comes after `v1.` or `beta.`; of what Google does by itself, it is the beginning."""
ENDS: Mapping[str, str] = {
    "preempted": "it was preempted",
    "hostError": "its host has failed",
    "guestTerminate": "it has shut itself down",
    "terminateOnHostMaintenance": "it was ended for the maintenance of its host",
    "delete": "it was deleted",
    "stop": "it was stopped",
}
BY_SOMEBODY = frozenset({"delete", "stop"})


def told_by(data: bytes, *, receipt: str, message_id: str) -> Notification:
    """What a message says; nothing of use, for one that cannot be read or is about something else.

    An operation has two entries, when it begins and when it ends: both are heeded, in any order.
    """
    of_no_use = Notification(receipt=receipt, id=message_id)
    try:
        entry = json.loads(data)
        payload = entry["protoPayload"]
        event = str(payload["methodName"]).partition(METHOD)[2]
        name = str(payload["resourceName"]).rpartition("/instances/")[2]
        if event not in ENDS or not name.startswith(PREFIX) or _has_failed(entry):
            return of_no_use
        news = MachineNews(
            what=_words(event, payload),
            at=datetime.fromisoformat(entry["timestamp"]),
            provider_machine_id=str(entry["resource"]["labels"].get("instance_id", "")),
        )
        told_id = str(entry.get("insertId") or message_id)
    except (ValueError, LookupError, TypeError, AttributeError):
        return of_no_use
    return Notification(receipt=receipt, id=told_id, machine_name=name, news=news)


def _has_failed(entry: Any) -> bool:
    """A request that was refused, or an operation that ended with an error: nothing happened."""
    return entry.get("severity") == "ERROR" or not entry.get("operation")


def _words(event: str, payload: Any) -> str:
    principal = payload.get("authenticationInfo", {}).get("principalEmail")
    by = f" by {principal}" if principal and event in BY_SOMEBODY else ""
    return f"{ENDS[event]}{by}"
