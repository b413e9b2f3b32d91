"""The endpoints that notebooks announce: kept in rows, offered, held by one lease, and forgotten.

A provider has one endpoint at a time, and each announcement replaces the one before. Nothing here
connects an endpoint.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlmodel import Session, col, delete, select

from activities.db.ids import new_id
from activities.db.tables import ColabEndpointRow, Lease, Node, ShortageRow
from activities.providers.rental_offers import keep_offers
from workflows.contracts.machines import MachineOffer, RentalOffer
from workflows.contracts.statuses import NodeStatus

LIFETIME = timedelta(hours=12)
"""After which an endpoint expires: a notebook's runtime lives no longer than that."""
SILENCE_LIMIT = timedelta(minutes=5)
"""How long a node may be offline before its notebook counts as gone."""
ZONE = "notebook"
MACHINE_TYPE = "colab"


@dataclass(frozen=True, slots=True)
class AnnouncedEndpoint:
    """What a notebook says of itself; all of it is hearsay, but the host key is pinned.

    gpu_type: of the catalogue; minion_id: the fingerprint of host_key.
    """

    host: str
    port: int
    ssh_user: str
    host_key: str
    minion_id: str
    gpu_type: str | None
    gpu_count: int
    cpu_count: int
    memory_bytes: int


def keep_endpoint(
    session: Session, row: ColabEndpointRow, announced: AnnouncedEndpoint, at: datetime
) -> str | None:
    """Replace the endpoint of a locked row and its offer, and void the token.

    Returns the machine name of the lease that has held the endpoint before and has lost it.
    """
    held_by = row.held_by
    row.token_sha256 = row.token_expires_at = None
    row.endpoint_id = new_id("cep")
    row.host, row.port, row.ssh_user = announced.host, announced.port, announced.ssh_user
    row.host_key, row.minion_id = announced.host_key, announced.minion_id
    row.gpu_type, row.gpu_count = announced.gpu_type, announced.gpu_count
    row.cpu_count, row.memory_bytes = announced.cpu_count, announced.memory_bytes
    row.announced_at, row.expires_at = at, at + LIFETIME
    row.held_by = row.held_at = None
    session.add(row)
    keep_offers(session, row.provider_id, offers_of(row, at), at)
    return held_by


def offers_of(row: ColabEndpointRow | None, at: datetime) -> tuple[RentalOffer, ...]:
    """The one offer of an endpoint; none when it has expired."""
    if row is None or not is_open(row, at):
        return ()
    found = RentalOffer(
        machine=offer_of(row), cpu_count=row.cpu_count, memory_bytes=row.memory_bytes
    )
    return (found,)


def offer_of(row: ColabEndpointRow) -> MachineOffer:
    """The offer of this endpoint and of no later one, free of charge."""
    return MachineOffer(
        zone=ZONE,
        machine_type=MACHINE_TYPE,
        gpu_type=row.gpu_type,
        gpu_count=row.gpu_count,
        microcredits_per_hour=0,
        provider_offer_id=row.endpoint_id or "",
    )


def is_open(row: ColabEndpointRow, at: datetime) -> bool:
    """Whether an endpoint was announced and has not expired."""
    return row.endpoint_id is not None and row.expires_at is not None and at < row.expires_at


def release_endpoint(session: Session, row: ColabEndpointRow) -> None:
    """Let the next lease have a locked endpoint, also one that was refused meanwhile."""
    row.held_by = row.held_at = None
    session.add(row)
    session.exec(delete(ShortageRow).where(col(ShortageRow.provider_id) == row.provider_id))


def expire_endpoint(session: Session, row: ColabEndpointRow, at: datetime) -> None:
    """Offer a locked endpoint to nobody any more, because it does not answer."""
    row.expires_at = at
    session.add(row)
    keep_offers(session, row.provider_id, (), at)


def node_before(session: Session, row: ColabEndpointRow, machine_name: str) -> str | None:
    """The id of a node that still has the host key of an endpoint, and is not this machine's."""
    own = select(Lease.holder_id).where(Lease.name == machine_name)
    query = (
        select(Node.id)
        .join(Lease, col(Lease.holder_id) == Node.id)
        .where(
            Lease.provider_id == row.provider_id,
            Node.minion_id == row.minion_id,
            Node.status != NodeStatus.ARCHIVED,
            col(Node.id).not_in(own),
        )
    )
    return session.exec(query).first()


def silent_since(session: Session, machine_name: str, at: datetime) -> datetime | None:
    """Since when the node of this machine is offline; None: it answers, or not for long enough."""
    query = (
        select(Node.updated_at)
        .join(Lease, col(Lease.holder_id) == Node.id)
        .where(Lease.name == machine_name, Node.status == NodeStatus.OFFLINE)
    )
    since = session.exec(query).first()
    return since if since is not None and at - since >= SILENCE_LIMIT else None
