"""The notification feed of a Google provider, read from its Pub/Sub subscription."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from activities.providers.base import KeyMistakeError, Notification, RequestRefused
from activities.providers.gcp.audit_log import read_notification
from activities.providers.gcp.errors import naming_request
from activities.providers.gcp.project import translated_errors
from activities.providers.gcp.pubsub import subscription_path
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession, google_session
from activities.secrets.credentials import CredentialsError

if TYPE_CHECKING:
    from google import pubsub_v1

PULL_S = 60.0
"""How long one pull waits for the first message."""
AT_ONCE = 200
"""The most messages in one answer; more of them wait at Google."""


class GoogleNotifications:
    """The `NotificationFeed` (see `activities/providers/base.py`) of a Google provider."""

    def __init__(self, session: GoogleSession, provider_id: str) -> None:
        self._subscription = subscription_path(session, provider_id)
        self._asked = f"subscription {self._subscription}"
        self._client: pubsub_v1.SubscriberAsyncClient = session.listener()

    async def next(self) -> Sequence[Notification]:
        from google.api_core.exceptions import DeadlineExceeded  # noqa: PLC0415

        request = {"subscription": self._subscription, "max_messages": AT_ONCE}
        with translated_errors(), naming_request(self._asked):
            try:
                answer = await self._client.pull(request=request, timeout=PULL_S, retry=None)
            except DeadlineExceeded:
                return ()
        return [
            read_notification(
                each.message.data, receipt=each.ack_id, message_id=each.message.message_id
            )
            for each in answer.received_messages
        ]

    async def settle(self, receipts: Sequence[str]) -> None:
        if not receipts:
            return
        request = {"subscription": self._subscription, "ack_ids": list(receipts)}
        with translated_errors(), naming_request(self._asked):
            await self._client.acknowledge(request=request, timeout=ANSWER_LIMIT_S, retry=None)

    async def close(self) -> None:
        await self._client.transport.close()  # type: ignore[no-untyped-call]


def google_notifications(provider_id: str) -> Callable[[], GoogleNotifications]:
    """Return the function that makes the feed on the event loop which uses the feed.

    Blocking, because Google's library is loaded here.
    Raises: RequestRefused, when the provider has no key, or its key is malformed.
    """
    from google import pubsub_v1  # noqa: F401, PLC0415 - over a second, which the loop cannot wait

    try:
        session = google_session(provider_id)
    except (CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(f"key of {provider_id}: {error}") from error
    return lambda: GoogleNotifications(session, provider_id)
