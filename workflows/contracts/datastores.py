"""Datastores: shared folders of a region, the input, signals and result of their lifecycle."""

from enum import StrEnum

from workflows.contracts.base import Contract
from workflows.contracts.removals import RemovalProgress


class DatastoreType(StrEnum):
    NFS = "nfs"
    SMB = "smb"


class DatastoreStatus(StrEnum):
    NEW = "new"
    CHECKING = "checking"
    READY = "ready"
    OFFLINE = "offline"
    FAILED = "failed"
    REMOVING = "removing"
    ARCHIVED = "archived"


class DatastoreEvent(StrEnum):
    """The types of a datastore's events."""

    ARCHIVED = "datastore.archived"
    CHECKED = "datastore.checked"
    CHECKING = "datastore.checking"
    FAILED = "datastore.failed"
    OFFLINE = "datastore.offline"
    READY = "datastore.ready"
    REMOVAL_REFUSED = "datastore.removal-refused"
    REMOVING = "datastore.removing"
    REQUEST_PARKED = "datastore.request-parked"
    REQUESTED = "datastore.requested"


class DatastoreWay(StrEnum):
    """How a node reaches a datastore."""

    KERNEL = "kernel"
    """The kernel mounts it, and runs read and write it in place."""
    USER_SPACE = "user-space"
    """Programs of the node copy input before the start, and output after the end."""


class DatastoreRequest(Contract):
    """Input of `datastore/{id}`."""

    datastore_id: str
    account_id: str
    region_id: str
    name: str
    sequence: int = 0
    resumed_status: DatastoreStatus | None = None
    resumed_reason: str | None = None
    removal: RemovalProgress | None = None
    """The removal that is under way; None: there is none."""


class DatastoreReport(Contract):
    datastore_id: str
    status: DatastoreStatus
    status_reason: str | None = None
