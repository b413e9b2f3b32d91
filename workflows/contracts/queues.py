"""Task queues. A site's activities never open the database; the main queue's never touch a node."""

MAIN = "main"
PLANNING = "planning"
NOTIFICATIONS = "news"
"""Activities that listen for as long as a provider is there: they hold up nothing on `main`."""


def site(region_id: str) -> str:
    """The queue of everything that is done on machines of one region."""
    return f"site/{region_id}"
