"""Operations of Compute Engine, seen to their end by our own client.

The library's own polls Google's host whatever the endpoint.
"""

from typing import Any

from activities.providers.gcp.errors import GoogleUnavailableError, asking, refused
from activities.providers.gcp.session import GoogleSession

OPERATION_LIMIT_S = 90.0
"""How long one look at an operation may last; Google itself answers after two minutes at most."""


def awaited(session: GoogleSession, operation: Any, asked: str, **scope: str) -> Any:
    """The operation once it is done, or as it is after the limit.

    scope: `zone` or `region`, where it is in one. Raises: the errors of `errors.py`.
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
    with asking(f"{asked}: {operation.name}"):
        return client.wait(
            project=session.project_id,
            operation=operation.name,
            timeout=OPERATION_LIMIT_S,
            retry=None,
            **scope,
        )


def finish(session: GoogleSession, operation: Any, asked: str, **scope: str) -> None:
    """See it to its end.

    Raises: GoogleRefusedError with the code of the operation's error; GoogleUnavailableError while
    it goes on, to be looked at again.
    """
    from google.cloud import compute_v1  # noqa: PLC0415

    operation = awaited(session, operation, asked, **scope)
    if operation.status != compute_v1.Operation.Status.DONE:
        raise GoogleUnavailableError(f"{asked}: {operation.name} goes on")
    for error in operation.error.errors:
        raise refused(asked, operation.http_error_status_code, error.code, error.message)
