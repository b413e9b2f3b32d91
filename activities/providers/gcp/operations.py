"""Operations of Compute Engine, which our own client waits for.

The library's own waiting polls Google's host, whatever the endpoint.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from activities.providers.gcp.errors import GoogleUnavailableError, naming_request, refused
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState

LINK = "https://www.googleapis.com/compute/v1/"
BEGINNINGS = frozenset({"insert", "start", "compute.instances.automaticRestart"})
ENDS = frozenset(
    {
        "delete",
        "stop",
        "compute.instances.preempted",
        "compute.instances.hostError",
        "compute.instances.guestTerminate",
    }
)
"""The types of operations after which a machine is no longer billed."""
OPERATION_LIMIT_S = 90.0
"""How long one poll of an operation may last; Google itself answers after two minutes at most."""


def awaited(session: GoogleSession, operation: Any, asked: str, **scope: str) -> Any:
    """The operation when it is done, or as it is after `OPERATION_LIMIT_S`.

    scope: the `zone` or `region` of the operation; empty for a global one.
    Raises: the errors of `errors.py`.
    """
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    if operation.status == compute_v1.Operation.Status.DONE:
        return operation
    clients = {
        "zone": compute_v1.ZoneOperationsClient,
        "region": compute_v1.RegionOperationsClient,
        "global": compute_v1.GlobalOperationsClient,
    }
    client = session.compute(clients[next(iter(scope), "global")])
    with naming_request(f"{asked}: {operation.name}"):
        return client.wait(
            project=session.project_id,
            operation=operation.name,
            timeout=OPERATION_LIMIT_S,
            retry=None,
            **scope,
        )


def finish(session: GoogleSession, operation: Any, asked: str, **scope: str) -> None:
    """Wait for the end of an operation.

    Raises: GoogleRefusedError with the code of the operation's error; GoogleUnavailableError while
    the operation still runs, so that the caller retries.
    """
    from google.cloud import compute_v1  # noqa: PLC0415

    operation = awaited(session, operation, asked, **scope)
    if operation.status != compute_v1.Operation.Status.DONE:
        raise GoogleUnavailableError(f"{asked}: {operation.name} still runs")
    for error in operation.error.errors:
        raise refused(asked, operation.http_error_status_code, error.code, error.message)


def operations_of(
    session: GoogleSession, name: str, zone: str, machine_id: str | None
) -> list[Any]:
    """All operations on a machine, which may be gone, that Google still lists.

    machine_id: Google's number of the machine; without it, the operations on every machine that
    ever had the name in the zone. Raises: the errors of `errors.py`.
    """
    from google.cloud import compute_v1  # noqa: PLC0415

    path = f"projects/{session.project_id}/zones/{zone}/instances/{name}"
    which = f"targetId={machine_id}" if machine_id else f'targetLink="{LINK}{path}"'
    request = compute_v1.ListZoneOperationsRequest(
        project=session.project_id, zone=zone, filter=which
    )
    client = session.compute(compute_v1.ZoneOperationsClient)
    with naming_request(f"operations of {name}"):
        found = list(client.list(request=request, timeout=ANSWER_LIMIT_S, retry=None))
    # Filter here as well: if Google ignores the filter, machines must not be mixed up.
    if machine_id:
        return [each for each in found if str(each.target_id) == machine_id]
    return [each for each in found if each.target_link.endswith(f"/{path}")]


def lasted(operations: Iterable[Any]) -> MachineObservation:
    """The observation of a machine that is gone: when its last run started and ended.

    A machine whose creation failed has never run.
    """
    done = [each for each in operations if each.end_time and not each.error.errors]
    began_at = ended_at = None
    for each in sorted(done, key=_ended_at):
        if each.operation_type in BEGINNINGS:
            began_at, ended_at = _ended_at(each), None
        elif each.operation_type in ENDS and ended_at is None:
            ended_at = _ended_at(each)
    return MachineObservation(state=MachineState.GONE, began_at=began_at, ended_at=ended_at)


def _ended_at(operation: Any) -> datetime:
    return datetime.fromisoformat(operation.end_time)
