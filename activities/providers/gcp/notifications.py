"""News of a provider's machines, out of its subscription."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from activities.providers.base import KeyMistakeError, Notification, RequestRefused
from activities.providers.gcp.audit_log import told_by
from activities.providers.gcp.errors import naming_request
from activities.providers.gcp.project import translated_errors
from activities.providers.gcp.pubsub import subscription_path
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession, google_session
from activities.secrets.credentials import CredentialsError

if TYPE_CHECKING:
    from google import pubsub_v1

PULL_S = 60.0
"""How long one pull waits for a first message."""
AT_ONCE = 200
"""Messages in one answer: more of them wait at Google."""


class GoogleNews:
    """See `activities/providers/base.py: NotificationFeed`."""

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
            told_by(each.message.data, receipt=each.ack_id, message_id=each.message.message_id)
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


def google_news(provider_id: str) -> Callable[[], GoogleNews]:
    """What makes the feed, on the event loop that is to use it. Blocks: Google's library is loaded.

    Raises: RequestRefused, when there is no key, or it is none.
    """
    from google import pubsub_v1  # noqa: F401, PLC0415 - more than a second, before the loop waits

    try:
        session = google_session(provider_id)
    except (CredentialsError, KeyMistakeError) as error:
        raise RequestRefused(f"key of {provider_id}: {error}") from error
    return lambda: GoogleNews(session, provider_id)
