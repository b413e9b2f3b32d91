"""The Google Cloud project of a provider: its checks, and the cloud resources that it has once."""

from collections.abc import Generator
from contextlib import contextmanager

from activities.providers.base import KeyMistakeError, RequestRefused, Unavailable
from activities.providers.gcp.checks import check_project
from activities.providers.gcp.errors import (
    GoogleRefusedError,
    GoogleUnavailableError,
    KeyRefusedError,
)
from activities.providers.gcp.project_resources import RESOURCES
from activities.providers.gcp.session import GoogleSession, google_session
from activities.secrets.credentials import CredentialsError
from workflows.contracts.providers import Check, CloudResource


class GcpProject:
    """The `CloudProject` of one provider. Every method blocks and may be repeated.

    Raises: every method Unavailable, RequestRefused.
    """

    def __init__(self, provider_id: str) -> None:
        self._provider_id = provider_id

    def check(self) -> tuple[Check, ...]:
        """Run every check; a missing or malformed key is a failed check."""
        try:
            session = google_session(self._provider_id)
        except (CredentialsError, KeyMistakeError) as mistake:
            fix = "give the provider a key again"
            return (Check(name="key", status="failed", detail=str(mistake), fix=fix),)
        with translated_errors():
            return check_project(session)

    def make(self, resource: str) -> CloudResource:
        """Find the resource, or else create it.

        Raises: Unavailable; RequestRefused, also when a resource has our name but is not ours.
        """
        with translated_errors():
            return CloudResource(
                name=resource, path=RESOURCES[resource].make(self._session, self._provider_id)
            )

    def remove(self, resource: str) -> CloudResource:
        """Remove the resource if it exists. Raises: as `make`."""
        with translated_errors():
            removed = RESOURCES[resource].remove(self._session, self._provider_id)
            return CloudResource(name=resource, path=removed)

    @property
    def _session(self) -> GoogleSession:
        return google_session(self._provider_id)


@contextmanager
def translated_errors() -> Generator[None, None, None]:
    """Translate Google's errors to those that every provider has.

    Raises: Unavailable, when Google does not answer; RequestRefused, when Google refuses the
    request or the key, or the key is missing or malformed.
    """
    try:
        yield
    except GoogleUnavailableError as error:
        raise Unavailable(str(error)) from error
    except (GoogleRefusedError, KeyRefusedError, CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(str(error)) from error
