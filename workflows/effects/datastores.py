"""Effects of datastores: choose a node that checks one, check it from there, forget its access."""

from workflows.contracts.artifacts import Content, RegionalSource
from workflows.contracts.base import Contract, Done
from workflows.contracts.datastores import DatastoreWay
from workflows.contracts.errors import DATASTORE_AWAY, NODE_UNREACHABLE, NON_RETRYABLE
from workflows.contracts.nodes import NodeAddress
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand


class FindDatastoreChecker(Contract):
    """Choose an active node of the datastore's region, and seal for its site what it must know."""

    datastore_id: str
    tried: tuple[str, ...] = ()
    """The nodes that could not be asked just now."""


class DatastoreChecker(Contract):
    """The chosen node; None: the region has no other active one."""

    node: NodeAddress | None = None
    node_name: str = ""
    access: str = ""
    """The name of the sealed access in the object store."""


class CheckDatastore(SiteCommand):
    """Ask a node whether it reaches the datastore, and whether jobs may write there."""

    datastore_id: str
    access: str


class DatastoreChecked(Contract):
    """What the node has seen.

    is_refused: the server is there and says no, which later checks will hardly change.
    """

    is_reachable: bool
    is_writable: bool = False
    is_refused: bool = False
    way: DatastoreWay
    reason: str | None = None


class ForgetDatastore(Contract):
    """Remove the password of a datastore, and what is sealed for its site."""

    datastore_id: str


class FindDatastoreReader(Contract):
    """Choose an active node of a datastore's region that reads an artifact's source for it."""

    artifact_id: str
    source: RegionalSource
    tried: tuple[str, ...] = ()
    """The nodes that could not be asked just now."""


class DatastoreReader(Contract):
    """The chosen node; None: the region has no other active one."""

    node: NodeAddress | None = None
    access: str = ""
    """The name of the sealed access in the object store."""
    most_bytes: int = 0
    """The size limit of the content."""


class TransferFromDatastore(SiteCommand):
    """Store the content of an artifact that a node reads from a datastore; go on after what an
    earlier attempt has stored."""

    artifact_id: str
    source: RegionalSource
    access: str
    most_bytes: int


find_datastore_checker = Effect("find_datastore_checker", FindDatastoreChecker, DatastoreChecker)

check_datastore = Effect(
    "check_datastore",
    CheckDatastore,
    DatastoreChecked,
    queue=None,
    start_to_close_s=200,
    schedule_to_close_s=300,
    schedule_to_start_s=60,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=(*NON_RETRYABLE, NODE_UNREACHABLE),
)
"""A node that cannot be reached is not asked again: the lifecycle asks another one."""

find_datastore_reader = Effect("find_datastore_reader", FindDatastoreReader, DatastoreReader)

transfer_from_datastore = Effect(
    "transfer_from_datastore",
    TransferFromDatastore,
    Content,
    queue=None,
    start_to_close_s=24 * 3600,
    schedule_to_close_s=7 * 24 * 3600,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    retry_max_s=300,
    attempts=7,
    non_retryable=(*NON_RETRYABLE, NODE_UNREACHABLE, DATASTORE_AWAY),
    waits_for_cancellation=True,
)
"""As `transfer_artifact`. A node that cannot be reached, or does not reach the datastore, is not
asked again here: the lifecycle asks another one, and later it again."""

forget_datastore = Effect("forget_datastore", ForgetDatastore, Done, schedule_to_close_s=600)
