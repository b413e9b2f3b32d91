"""What the checks of a datastore need of its rows: a node to look from, and its sealed access."""

from collections.abc import Sequence

from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import Datastore, Node, Region
from activities.nodes.addresses import address_of
from activities.secrets.sealing import secret_box
from activities.storage.datastore_access import DatastoreAccess, forget_access, seal_access
from workflows.contracts.base import Done
from workflows.contracts.datastores import DatastoreType
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.statuses import NodeStatus
from workflows.effects.datastores import (
    DatastoreChecker,
    FindDatastoreChecker,
    ForgetDatastore,
)
from workflows.rules.catalogue.providers import traits_of

SEALED = "datastore"
"""The kind of the sealed passwords in rows."""


@activity.defn
def find_datastore_checker(command: FindDatastoreChecker) -> DatastoreChecker:
    """The first active node of the datastore's region that was not tried, with the sealed access.

    Raises: NotFound, when there is no such datastore.
    """
    with database().read() as session:
        row = session.get(Datastore, command.datastore_id)
        if row is None:
            raise not_there(command.datastore_id)
        found = find_active_node(session, row, command.tried)
        if found is None:
            return DatastoreChecker()
        node, region = found
        checker = DatastoreChecker(node=address_of(node, region), node_name=node.name)
        access = access_of(row, region)
    return checker.model_copy(update={"access": seal_access(node.region_id, access)})


def not_there(datastore_id: str) -> ApplicationError:
    """The failure where there is no such datastore, or none any more."""
    return ApplicationError(f"{datastore_id}: there is no such datastore", type=NOT_FOUND)


def find_active_node(
    session: Session, row: Datastore, tried: Sequence[str]
) -> tuple[Node, Region] | None:
    """The first active node of the datastore's region that was not tried."""
    query = (
        select(Node, Region)
        .join(Region, col(Region.id) == Node.region_id)
        .where(
            col(Node.region_id) == row.region_id,
            col(Node.status) == NodeStatus.ACTIVE,
            col(Node.host).is_not(None),
            col(Node.id).not_in(tried),
        )
        .order_by(col(Node.id))
    )
    # A machine that somebody rents out gets a password only where no other one can be asked.
    return min(
        session.exec(query).all(), key=lambda each: each[0].machine is not None, default=None
    )


def access_of(row: Datastore, region: Region) -> DatastoreAccess:
    """The access of a datastore of the region, with its password.

    Raises: SealBrokenError, MasterKeyError.
    """
    return DatastoreAccess(
        id=row.id,
        name=row.name,
        type=DatastoreType(row.type),
        host=row.host,
        port=row.port,
        root_path=row.root_path,
        user=row.user,
        password=password_of(row),
        is_public_only=not traits_of(region.provider_kind).has_own_networks,
    )


def password_of(row: Datastore) -> str | None:
    """The password of a datastore. Raises: SealBrokenError, MasterKeyError."""
    if row.sealed_password is None:
        return None
    box = secret_box(SEALED, row.account_id)
    return box.open(row.sealed_password, row.id.encode()).decode()


def seal_password(row: Datastore, password: str) -> None:
    """Keep a password with the row of its datastore, sealed."""
    box = secret_box(SEALED, row.account_id)
    row.sealed_password = box.seal(password.encode(), row.id.encode())


@activity.defn
def forget_datastore(command: ForgetDatastore) -> Done:
    """Remove the password of a datastore and its sealed access; silent when they are gone."""
    with database().write() as session:
        _forget_password(session, command.datastore_id)
    forget_access(command.datastore_id)
    return Done()


def _forget_password(session: Session, datastore_id: str) -> None:
    row = session.get(Datastore, datastore_id, with_for_update=True)
    if row is not None:
        row.sealed_password = None
