"""Audit log entries about machines, as Google writes them, given to the log sinks.

`activity` is what someone did: an entry when the operation begins and one when it has ended;
`system_event` is what Google did: preemption, host errors, the guest's own end.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.doubles.gcp.clock import rfc3339
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.sinks import route

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud

AUDIT_LOG = "type.googleapis.com/google.cloud.audit.AuditLog"
MESSAGES = {
    "compute.instances.preempted": "Instance was preempted.",
    "compute.instances.hostError": "Instance terminated by Compute Engine.",
    "compute.instances.automaticRestart": "Instance automatically restarted by Compute Engine.",
    "compute.instances.guestTerminate": "Instance terminated by guest OS shutdown.",
    "compute.instances.terminateOnHostMaintenance": "Instance terminated during maintenance.",
}


@dataclass(frozen=True)
class Activity:
    """Something that someone does to a machine; method: such as `v1.compute.instances.insert`."""

    project: str
    method: str
    target: str
    principal: str
    operation: str = ""
    target_id: str = ""

    def of(self, operation: str, target_id: str) -> Activity:
        return replace(self, operation=operation, target_id=target_id)


class Audit:
    """Writes entries; each comes to the sinks after a while of the cloud's time."""

    def __init__(self, cloud: Cloud, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._cloud = cloud
        self._later = later
        self.delay_s = 1.0
        self.written: list[Json] = []

    def began(self, activity: Activity) -> None:
        self._activity(activity, "first")

    def ended(self, activity: Activity, error: str = "") -> None:
        self._activity(activity, "last", error)

    def refused(self, activity: Activity, error: str) -> None:
        """A request that was refused at once: an entry without an operation."""
        entry = self._entry(activity, "activity", "ERROR")
        entry["protoPayload"]["status"] = {"code": 5, "message": error}
        self._write(activity.project, entry)

    def system_event(self, project: str, target: str, target_id: str, method: str) -> None:
        activity = Activity(project, method, target, "system@google.com", target_id=target_id)
        entry = self._entry(activity, "system_event", "INFO")
        at_ms = int(self._cloud.clock.now() * 1000)
        entry["protoPayload"]["status"] = {"message": MESSAGES.get(method, "")}
        entry["operation"] = {
            "id": f"systemevent-{at_ms}-{secrets.token_hex(6)}",
            "producer": method,
            "first": True,
            "last": True,
        }
        self._write(project, entry)

    def _activity(self, activity: Activity, which: str, error: str = "") -> None:
        entry = self._entry(activity, "activity", "ERROR" if error else "NOTICE")
        entry["operation"] = {
            "id": activity.operation,
            "producer": "compute.googleapis.com",
            which: True,
        }
        if error:
            entry["protoPayload"]["status"] = {"code": 8, "message": error}
        self._write(activity.project, entry)

    def _entry(self, activity: Activity, log: str, severity: str) -> Json:
        now = rfc3339(self._cloud.clock.now())
        parts = activity.target.split("/")
        zone = parts[parts.index("zones") + 1] if "zones" in parts else ""
        method = activity.method.removeprefix("v1.")
        return {
            "protoPayload": {
                "@type": AUDIT_LOG,
                "authenticationInfo": {"principalEmail": activity.principal},
                "requestMetadata": {"callerIp": "127.0.0.1"},
                "serviceName": "compute.googleapis.com",
                "methodName": activity.method,
                "resourceName": activity.target,
                "request": {"@type": f"type.googleapis.com/{method}"},
            },
            "insertId": f"-{secrets.token_hex(6)}",
            "resource": {
                "type": "gce_instance",
                "labels": {
                    "instance_id": activity.target_id,
                    "project_id": activity.project,
                    "zone": zone,
                },
            },
            "timestamp": now,
            "severity": severity,
            "logName": f"projects/{activity.project}/logs/cloudaudit.googleapis.com%2F{log}",
            "receiveTimestamp": now,
        }

    def _write(self, project: str, entry: Json) -> None:
        self.written.append(entry)
        self._later(self.delay_s, lambda: route(self._cloud, project, entry))
