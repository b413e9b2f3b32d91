"""Boot-drive requests: accounts ask for drives from which machines start and join a region."""

from enum import StrEnum


class BootDriveRequestStatus(StrEnum):
    """The status of a boot-drive request.

    requested → approved → shipped → received; or, of one that is requested still, refused or
    withdrawn.
    """

    REQUESTED = "requested"
    APPROVED = "approved"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    SHIPPED = "shipped"
    RECEIVED = "received"


class BootDriveRequestEvent(StrEnum):
    """The types of a boot-drive request's events: one for each status."""

    APPROVED = "boot-drive-request.approved"
    RECEIVED = "boot-drive-request.received"
    REFUSED = "boot-drive-request.refused"
    REQUESTED = "boot-drive-request.requested"
    SHIPPED = "boot-drive-request.shipped"
    WITHDRAWN = "boot-drive-request.withdrawn"
