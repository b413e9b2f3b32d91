"""Task queues.

Activities of a site never open the database, and activities of `main` never connect to a node.
"""

MAIN = "main"
PLANNING = "planning"
NOTIFICATIONS = "notifications"
"""The queue of activities that receive notifications for hours, so that `main` keeps its slots."""


def site(region_id: str) -> str:
    """The task queue of the site of one region."""
    return f"site/{region_id}"
