"""Operations: every change takes a while, is polled, and ends well or with Google's own errors."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.doubles.gcp.audit import Activity
from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.clock import compute_time
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.faults import IN_THE_OPERATION, Fault, FaultKind
from tests.doubles.gcp.places import compute_list, link
from tests.doubles.gcp.quota import Exceeded

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud

serves = Register()
_PHRASES = {400: "BAD REQUEST", 403: "FORBIDDEN", 404: "NOT FOUND", 503: "SERVICE UNAVAILABLE"}


class OperationFailed(Exception):  # noqa: N818 - it is the error of an operation
    """How an operation ends badly; code and message: of `error.errors[0]`."""

    def __init__(
        self, code: str, message: str, status: int = 400, details: tuple[Json, ...] = ()
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.details = details

    @classmethod
    def stockout(cls, zone: str, project: str, vm_type: str, attachment: str) -> OperationFailed:
        where = f"projects/{project}/zones/{zone}"
        message = (
            f"The zone '{where}' does not have enough resources available to fulfill the request.  "
            "'(resource type:compute)'."
        )
        metadata = {"vmType": vm_type, "zone": zone, "zonesAvailable": ""}
        if attachment:
            metadata["attachment"] = attachment
        info = {
            "reason": "resource_availability",
            "domain": "compute.googleapis.com",
            "metadatas": metadata,
        }
        words = {"locale": "en-US", "message": message}
        return cls(
            "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
            message,
            503,
            ({"errorInfo": info}, {"localizedMessage": words}),
        )

    @classmethod
    def quota(cls, found: Exceeded) -> OperationFailed:
        return cls("QUOTA_EXCEEDED", found.message, 403, ({"quotaInfo": found.details},))


def nothing() -> None:
    """For work that is done when it begins."""


@dataclass(frozen=True)
class Work:
    """What an operation does.

    scope: the path of its zone or region, or `projects/p/global`; begin is done at once, end when
    it has lasted `lasts_s` of the cloud's time, undo if end fails by raising OperationFailed.
    """

    scope: str
    kind: str
    target: str
    lasts_s: float
    end: Callable[[], None]
    undo: Callable[[], None] = nothing
    begin: Callable[[], None] = nothing
    method: str = ""
    """The audited method, such as `v1.compute.instances.insert`; empty: not audited."""


def repeated(call: Call) -> Json | None:
    """The operation of an earlier request with the same id. Raises: RefusedError (400)."""
    given = call.get("requestId")
    if not given:
        return None
    try:
        request_id = uuid.UUID(given)
    except ValueError:
        request_id = uuid.UUID(int=0)
    if request_id.int == 0:
        raise RefusedError.invalid_field("requestId", given, "Must be a valid, non-zero UUID.")
    known = call.cloud.requests.get((call.project.id, str(request_id)))
    if known is None:
        return None
    method, path = known
    if method != call.method.id:
        raise RefusedError.invalid_field("requestId", given, f"It was used for {method}.")
    return call.cloud.resources.find(path)


def start(call: Call, work: Work) -> Json:
    """Begin an operation in the caller's name; its body, which is never DONE at first."""
    cloud = call.cloud
    name = work.target.rsplit("/", 1)[-1]
    fault = cloud.faults.take(IN_THE_OPERATION, call.method.id, name)
    operation = _body(cloud, work, call.principal)
    path = f"{work.scope}/operations/{operation['name']}"
    cloud.resources.add(path, operation)
    if call.get("requestId"):
        request_id = str(uuid.UUID(call.get("requestId")))
        cloud.requests[call.project.id, request_id] = (call.method.id, path)
    cloud.resources.busy.add(work.target)
    activity = Activity(call.project.id, work.method, work.target, call.principal)
    activity = activity.of(operation["name"], operation["targetId"])
    if work.method:
        cloud.audit.began(activity)
    if fault is None or fault.kind is not FaultKind.NOTHING_HAPPENS:
        work.begin()
        cloud.later(work.lasts_s, lambda: _finish(cloud, operation, work, fault, activity))
    return operation


def system_event(cloud: Cloud, scope: str, kind: str, target: str) -> Json:
    """An operation that Google itself began, and that is done: `systemevent-…`."""
    work = Work(scope, kind, target, 0.0, end=nothing)
    operation = _body(cloud, work, "system@google.com")
    operation["name"] = operation["name"].replace("operation-", "systemevent-")
    operation["selfLink"] = link(f"{scope}/operations/{operation['name']}")
    operation["statusMessage"] = "Instance was preempted." if kind.endswith("preempted") else kind
    _done(cloud, operation)
    cloud.resources.add(f"{scope}/operations/{operation['name']}", operation)
    return operation


def _body(cloud: Cloud, work: Work, user: str) -> Json:
    now = cloud.clock.now()
    name = f"operation-{int(now * 1000)}-{secrets.token_hex(6)}-{secrets.token_hex(4)}"
    target = cloud.resources.find(work.target) or {}
    operation = {
        "kind": "compute#operation",
        "id": cloud.new_id(),
        "name": name,
        "operationType": work.kind,
        "status": "RUNNING",
        "progress": 0,
        "user": user,
        "insertTime": compute_time(now),
        "startTime": compute_time(now),
        "targetId": target.get("id", "0"),
        "targetLink": link(work.target),
        "selfLink": link(f"{work.scope}/operations/{name}"),
    }
    for noun in ("zone", "region"):
        if f"/{noun}s/" in work.scope:
            operation[noun] = link(work.scope)
    return operation


def _finish(
    cloud: Cloud, operation: Json, work: Work, fault: Fault | None, activity: Activity
) -> None:
    failure: OperationFailed | None = None
    try:
        _strike(fault, work)
        work.end()
    except OperationFailed as error:
        failure = error
        work.undo()
    cloud.resources.busy.discard(work.target)
    if fault is not None and fault.kind is FaultKind.OPERATION_HANGS:
        operation["progress"] = 50
        return
    if failure is not None:
        operation.update(
            httpErrorStatusCode=failure.status,
            httpErrorMessage=_PHRASES[failure.status],
            error={"errors": [_error(failure)]},
        )
    _done(cloud, operation)
    if work.method:
        cloud.audit.ended(activity, failure.message if failure else "")


def _strike(fault: Fault | None, work: Work) -> None:
    """Raises: OperationFailed, when the fault is one."""
    if fault is None:
        return
    project = work.scope.split("/")[1]
    zone = work.scope.rsplit("/", 1)[1]
    if fault.kind is FaultKind.STOCKOUT:
        raise OperationFailed.stockout(zone, project, "injected", "")
    if fault.kind is FaultKind.PREEMPTED_IN_CREATION:
        message = f"Instance '{work.target}' creation failed: it was preempted meanwhile."
        raise OperationFailed("UNSUPPORTED_OPERATION", message)
    if fault.kind is FaultKind.OPERATION_QUOTA:
        raise OperationFailed.quota(Exceeded("CPUS", 0.0, zone.rpartition("-")[0]))


def _error(failure: OperationFailed) -> Json:
    told: Json = {"code": failure.code, "message": failure.message}
    if failure.details:
        told["errorDetails"] = list(failure.details)
    return told


def _done(cloud: Cloud, operation: Json) -> None:
    operation.update(status="DONE", progress=100, endTime=compute_time(cloud.clock.now()))


def _scope(call: Call) -> str:
    root = f"projects/{call.project.id}"
    if "zone" in call.parameters:
        return f"{root}/zones/{call['zone']}"
    return f"{root}/regions/{call['region']}" if "region" in call.parameters else f"{root}/global"


_KINDS = ("zoneOperations", "regionOperations", "globalOperations")


@serves(*(f"compute.{kind}.{verb}" for kind in _KINDS for verb in ("get", "wait")))
def get_operation(call: Call) -> Json:
    """The front door makes a `wait` wait."""
    return call.cloud.resources.get(f"{_scope(call)}/operations/{call['operation']}")


@serves(*(f"compute.{kind}.list" for kind in _KINDS))
def list_operations(call: Call) -> Json:
    folder = f"{_scope(call)}/operations"
    return compute_list(call, "operation", folder, call.cloud.resources.listed(folder))


def is_wait(method: str) -> bool:
    return method.startswith("compute.") and method.endswith("Operations.wait")


def is_done(operation: Any) -> bool:
    return bool(operation["status"] == "DONE")
