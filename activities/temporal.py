"""The Temporal client of this process, for activities and routes that tell workflows something."""

from temporalio.client import Client

_client: Client | None = None


def set_client(connected: Client) -> None:
    """Make this the client of the process; done once, before anything asks for it."""
    global _client  # noqa: PLW0603 - one client for each process
    _client = connected


def client() -> Client:
    """The client of the process.

    Raises: RuntimeError, when `set_client` was not called.
    """
    if _client is None:
        raise RuntimeError("no Temporal client in this process: set_client comes first")
    return _client
