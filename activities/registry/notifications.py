"""What the queue of notifications serves: one activity for each provider, which listens."""

from activities.providers.notifications import listen_for_news
from activities.registry import Activity

NEWS: tuple[Activity, ...] = (listen_for_news,)
