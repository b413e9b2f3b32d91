"""The Google clients for one key: its HTTP APIs, Compute Engine and Pub/Sub.

Google's libraries cost more than a second and 150 MB, so they are loaded on first use.
"""

import threading
from collections.abc import Mapping
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from activities.providers.gcp.errors import naming_request, reason_in, refused
from activities.providers.gcp.key import ServiceAccountKey, read_key
from activities.secrets.credentials import credentials_of
from activities.settings import settings

if TYPE_CHECKING:
    from google import pubsub_v1
    from google.auth.transport.requests import AuthorizedSession
    from google.oauth2.service_account import Credentials

ANSWER_LIMIT_S = 20.0
"""How long one answer may take; Google usually answers within a second."""
KEPT_SESSIONS = 64


class GoogleSession:
    """The Google clients that use one key. Thread-safe."""

    def __init__(self, key: ServiceAccountKey, endpoint: str | None) -> None:
        self.key = key
        self.endpoint = endpoint.rstrip("/") if endpoint else None
        self._kept = threading.local()

    @property
    def project_id(self) -> str:
        return self.key.project_id

    @cached_property
    def credentials(self) -> "Credentials":
        from activities.providers.gcp.identity import credentials_for  # noqa: PLC0415

        return credentials_for(self.key, asks_google=self.endpoint is None)

    def prove_key(self) -> None:
        """Get a token for the key, which the clients of Compute and Pub/Sub would never request.

        Raises: KeyRefusedError, GoogleUnavailableError.
        """
        from google.auth.transport.requests import Request  # noqa: PLC0415

        limited = partial(Request(), timeout=ANSWER_LIMIT_S)
        with naming_request(f"token for {self.key.email}"):
            self.credentials.refresh(limited)  # type: ignore[no-untyped-call]

    def ask(
        self,
        method: str,
        service: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
    ) -> dict[str, Any]:
        """One request to an HTTP API, such as `GET`, `logging`, `/v2/projects/p/sinks`.

        Raises: GoogleRefusedError, GoogleUnavailableError, KeyRefusedError.
        """
        base = self.endpoint or f"https://{service}.googleapis.com"
        asked = f"{service} {method} {path}"
        with naming_request(asked):
            answer = self._http.request(  # type: ignore[no-untyped-call]
                method, f"{base}{path}", params=query, json=body, timeout=ANSWER_LIMIT_S
            )
        try:
            content = answer.json() if answer.content else {}
        except ValueError:
            content = {}
        if answer.status_code >= 400:
            raise refused(asked, answer.status_code, *reason_in(content))
        return content if isinstance(content, dict) else {}

    def compute(self, client: type[Any]) -> Any:
        """A client of Compute Engine, such as `compute_v1.NetworksClient`, cached by session."""
        kept: dict[type[Any], Any] = self.__dict__.setdefault("_clients", {})
        if client not in kept:
            options = {"api_endpoint": self.endpoint} if self.endpoint else None
            kept[client] = client(credentials=self.credentials, client_options=options)
        return kept[client]

    @cached_property
    def publisher(self) -> "pubsub_v1.PublisherClient":
        """The client for topics. The library itself reads `PUBSUB_EMULATOR_HOST`."""
        from google import pubsub_v1  # noqa: PLC0415

        return pubsub_v1.PublisherClient(credentials=self.credentials)

    @cached_property
    def subscriber(self) -> "pubsub_v1.SubscriberClient":
        from google import pubsub_v1  # noqa: PLC0415

        return pubsub_v1.SubscriberClient(credentials=self.credentials)

    def listener(self) -> "pubsub_v1.SubscriberAsyncClient":
        """An asynchronous subscriber for the running event loop; the caller closes it."""
        from google import pubsub_v1  # noqa: PLC0415

        return pubsub_v1.SubscriberAsyncClient(credentials=self.credentials)

    @property
    def _http(self) -> "AuthorizedSession":
        """The HTTP session of this thread; sessions of requests are not thread-safe."""
        from google.auth.transport.requests import AuthorizedSession  # noqa: PLC0415

        if not hasattr(self._kept, "http"):
            self._kept.http = AuthorizedSession(self.credentials)  # type: ignore[no-untyped-call]
        kept: AuthorizedSession = self._kept.http
        return kept


def google_session(provider_id: str) -> GoogleSession:
    """The Google session of a provider, with the key to which its row refers now.

    Raises: CredentialsError, KeyMistakeError.
    """
    return session_for(credentials_of(provider_id), settings().gcp_endpoint)


@lru_cache(maxsize=KEPT_SESSIONS)
def session_for(content: str, endpoint: str | None) -> GoogleSession:
    """The session for a key, cached for its tokens and connections. Raises: KeyMistakeError."""
    return GoogleSession(read_key(content), endpoint)
