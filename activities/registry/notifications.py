"""Activities of the task queue `notifications`: one, which listens to a provider."""

from activities.providers.notifications import receive_notifications
from activities.registry import Activity

NOTIFICATIONS: tuple[Activity, ...] = (receive_notifications,)
