"""A project at Google as a provider: what is looked at, made and removed for it as a whole."""

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
    """Everything of one provider; blocking, and safe to be done again.

    Raises, all of it: Unavailable, RequestRefused.
    """

    def __init__(self, provider_id: str) -> None:
        self._provider_id = provider_id

    def check(self) -> tuple[Check, ...]:
        """Every check; a key that is not there, or is none, is one that fails."""
        try:
            session = google_session(self._provider_id)
        except (CredentialsError, KeyMistakeError) as mistake:
            fix = "give the provider a key again"
            return (Check(name="key", status="failed", detail=str(mistake), fix=fix),)
        with translated_errors():
            return check_project(session)

    def make(self, resource: str) -> CloudResource:
        """Find it, else make it. Raises: RequestRefused for what has our name and is not ours."""
        with translated_errors():
            return CloudResource(
                name=resource, path=RESOURCES[resource].make(self._session, self._provider_id)
            )

    def remove(self, resource: str) -> CloudResource:
        """Remove it if it is there and ours."""
        with translated_errors():
            removed = RESOURCES[resource].remove(self._session, self._provider_id)
            return CloudResource(name=resource, path=removed)

    @property
    def _session(self) -> GoogleSession:
        return google_session(self._provider_id)


@contextmanager
def translated_errors() -> Generator[None, None, None]:
    """Let Google's answers be those that every provider has."""
    try:
        yield
    except GoogleUnavailableError as error:
        raise Unavailable(str(error)) from error
    except (GoogleRefusedError, KeyRefusedError, CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(str(error)) from error
