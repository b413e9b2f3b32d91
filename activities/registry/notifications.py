"""What the queue of notifications serves: one activity for each provider, which listens."""

from activities.providers.notifications import receive_notifications
from activities.registry import Activity

NOTIFICATIONS: tuple[Activity, ...] = (receive_notifications,)
