"""Task queues: planes with walls, divided by who may be slow.

Activities of `main` and `planning` read and write rows and call nobody else. Activities of a cloud
queue call the API of one kind of cloud, which may hang for minutes. Activities of a site reach
nodes and never open the database.
"""

MAIN = "main"
PLANNING = "planning"
NOTIFICATIONS = "notifications"
"""The queue of activities that receive notifications for hours, so that `main` keeps its slots."""
CLOUD = "cloud/{kind}"
"""The queue for calls to the API of one provider kind, except for releases."""
RELEASES = "cloud/{kind}/release"
"""The queue for terminating machines of one provider kind, and for proving their end; its slots
are its own, because a machine that waits behind other calls costs money."""
TRANSFERS = "transfers"
"""The queue of transfers of artifacts from their sources, which take hours and read what others
serve."""
SITE = "site"
"""The queue of the sites of all shared regions; one for each would cost two long polls each."""


def of_kind(queue: str, kind: str) -> str:
    """The task queue `CLOUD` or `RELEASES` of one provider kind."""
    return queue.format(kind=kind)


def own_site(region_id: str) -> str:
    """The task queue of a region that a worker process of its own network serves."""
    return f"site/{region_id}"


def watches_of(site: str) -> str:
    """The queue of the watches of devices of a site's queue. Its slots are its own, because each
    watch has one for hours: however many devices there are, the site has slots for short work."""
    return f"{site}/watches"
