"""Typed Python client of the baseload control plane.

from baseload import Client

with Client() as client:
    for job in client.every(client.list_jobs):
        print(job.name, job.status)
"""

from typing import TYPE_CHECKING, Any

from baseload.errors import (
    ApiError,
    BaseloadError,
    ConfigurationError,
    FieldError,
    UnreachableError,
)

if TYPE_CHECKING:
    from baseload import models
    from baseload._async.client import AsyncClient
    from baseload._sync.client import Client
    from baseload.running import configure, run

__all__ = [
    "ApiError",
    "AsyncClient",
    "BaseloadError",
    "Client",
    "ConfigurationError",
    "FieldError",
    "UnreachableError",
    "configure",
    "models",
    "run",
]


def __getattr__(name: str) -> Any:
    """The clients and what uses them, imported when they are used, because the command's help does
    not need them."""
    if name == "Client":
        from baseload._sync.client import Client

        return Client
    if name == "AsyncClient":
        from baseload._async.client import AsyncClient

        return AsyncClient
    if name in ("configure", "run"):
        from baseload import running

        return getattr(running, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
