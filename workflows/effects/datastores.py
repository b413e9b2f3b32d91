"""Effects of datastores: choose a node that checks one, check it from there, forget its access."""

from workflows.contracts.base import Contract, Done
from workflows.contracts.datastores import DatastoreWay
from workflows.contracts.errors import NODE_UNREACHABLE, NON_RETRYABLE
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

forget_datastore = Effect("forget_datastore", ForgetDatastore, Done, schedule_to_close_s=600)
