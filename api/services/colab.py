"""Notebooks of Colab: the cell that announces one, and its announcement."""

import asyncio
import secrets
from datetime import UTC, datetime, timedelta

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.session import database
from activities.providers.base import Bootstrap
from activities.providers.colab_endpoints import AnnouncedEndpoint, is_open, keep_endpoint
from activities.providers.registry import kind_of
from activities.secrets.region_keys import region_key_line
from activities.transport.node_networks import AddressRefusedError, permitted_address
from api.authorization import hash_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import colab as schemas
from api.schemas.providers import ProviderEndpoint
from api.services.announcements import checked_fingerprint
from api.services.lifecycles import GONE, wrong_state
from api.services.ownership import own
from workflows.rules.catalogue.gpu_names import gpu_type_of_driver_name, model_of

TOKEN_LIFETIME = timedelta(hours=1)
RESOLVE_LIMIT_S = 5
_NOT_VALID = (
    "the token is not valid: it works once, and until the next one is made; make a new cell with "
    "`baseload provider colab-bootstrap`"
)


def make_bootstrap(
    context: ChangeContext, provider_id: str, api_url: str
) -> schemas.ColabBootstrap:
    """Make a one-time token, which voids the one before, and the cell that uses it.

    Raises: Problem `not-found`; `invalid-request`, when machines of the provider announce nothing;
    `conflict`, when it is being removed.
    """
    provider = own(context.session, tables.Provider, provider_id, context.caller)
    program = kind_of(provider.kind).bootstrap
    if program is None:
        rule = f"is a provider whose notebook announces itself; {provider.kind} machines do not"
        raise invalid(field_error("provider_id", rule, provider_id))
    if provider.status in GONE:
        raise wrong_state("provider", provider, "there to have a notebook")
    # The token has 256 random bits, so nobody can guess it, and a plain hash is safe to store.
    token = f"colab_{secrets.token_urlsafe(32)}"
    latest = context.caller.expires_at or datetime.max.replace(tzinfo=UTC)
    row = context.session.get(tables.ColabEndpointRow, provider_id, with_for_update=True)
    row = row or tables.ColabEndpointRow(provider_id=provider_id)
    row.token_sha256 = hash_of(token)
    row.token_expires_at = expires_at = min(context.now + TOKEN_LIFETIME, latest)
    context.session.add(row)
    context.resource_id = provider_id
    public_key = region_key_line(_region_of(context.session, provider_id).id)
    return schemas.ColabBootstrap(
        cell=program(Bootstrap(api_url=api_url, public_key=public_key, token=token)),
        public_key=public_key,
        token=token,
        expires_at=expires_at,
    )


def check_token(token: str) -> None:
    """Refuse a token that is not valid before anything else is done for its sender.

    Raises: Problem `unauthorized`, as `announce`.
    """
    with database().read() as session:
        _valid_row(session, token, datetime.now(UTC), locked=False)


async def check_address(host: str, port: int) -> None:
    """Refuse an address at which no node may be; it is checked at every connection again.

    Raises: Problem `invalid-request`.
    """
    try:
        await asyncio.wait_for(permitted_address(host, port), RESOLVE_LIMIT_S)
    except (AddressRefusedError, OSError, UnicodeError, TimeoutError):
        # One answer to all: which names the platform's own resolver knows is nobody's business.
        rule = "is the name or the public address of a tunnel, and can be resolved"
        raise invalid(field_error("host", rule, host)) from None


def announce(
    context: ChangeContext, asked: schemas.ColabAnnouncementCreation
) -> schemas.ColabAnnouncementReceipt:
    """Replace the endpoint of the token's provider, and its offer; the token is used up.

    A lease that has held the endpoint before has lost its machine, and looks at once.
    Raises: Problem `unauthorized`, when the token is unknown, used, void or expired, or its
    provider is gone; the answer never says which. `invalid-request`, which leaves the token.
    """
    row = _valid_row(context.session, asked.token, context.now, locked=True)
    gpu_type = _gpu_type(asked)
    minion_id = checked_fingerprint(asked.host_public_key)
    announced = AnnouncedEndpoint(
        host=asked.host,
        port=asked.port,
        ssh_user=asked.user,
        host_key=asked.host_public_key,
        minion_id=minion_id,
        gpu_type=gpu_type,
        gpu_count=asked.gpu_count,
        cpu_count=asked.cpu_count,
        memory_bytes=asked.memory_bytes,
    )
    before = keep_endpoint(context.session, row, announced, context.now)
    if before is not None:
        _refresh_lease(context, before)
    assert row.expires_at is not None, row.provider_id  # noqa: S101
    return schemas.ColabAnnouncementReceipt(
        provider_id=row.provider_id,
        host=row.host,
        port=row.port,
        host_key_fingerprint=minion_id,
        gpu_type=gpu_type,
        gpu_count=asked.gpu_count,
        expires_at=row.expires_at,
    )


def endpoints_of(
    session: Session, provider_ids: list[str], now: datetime
) -> dict[str, ProviderEndpoint]:
    """The endpoints of these providers that have not expired, by provider."""
    query = select(tables.ColabEndpointRow).where(
        col(tables.ColabEndpointRow.provider_id).in_(provider_ids)
    )
    return {
        row.provider_id: ProviderEndpoint(**row.model_dump())
        for row in session.exec(query)
        if is_open(row, now)
    }


def _valid_row(
    session: Session, token: str, now: datetime, *, locked: bool
) -> tables.ColabEndpointRow:
    query = select(tables.ColabEndpointRow).where(
        tables.ColabEndpointRow.token_sha256 == hash_of(token)
    )
    row = session.exec(query.with_for_update() if locked else query).first()
    if row is None or row.token_expires_at is None or row.token_expires_at <= now:
        raise Problem("unauthorized", _NOT_VALID)
    if session.get_one(tables.Provider, row.provider_id).status in GONE:
        raise Problem("unauthorized", _NOT_VALID)
    return row


def _gpu_type(asked: schemas.ColabAnnouncementCreation) -> str | None:
    """The catalogue's name of the GPU. Raises: Problem, for one that it does not know."""
    if not asked.gpu_count:
        return None
    name = gpu_type_of_driver_name(asked.gpu_name or "")
    if model_of(name) is None:
        raise invalid(field_error("gpu_name", "is a GPU of the catalogue", asked.gpu_name))
    return name


def _region_of(session: Session, provider_id: str) -> tables.Region:
    query = select(tables.Region).where(
        tables.Region.provider_id == provider_id, col(tables.Region.status).not_in(GONE)
    )
    region = session.exec(query).first()
    if region is None:
        raise Problem("conflict", f"provider {provider_id}: has no region any more")
    return region


def _refresh_lease(context: ChangeContext, machine_name: str) -> None:
    query = select(tables.Lease.id).where(tables.Lease.name == machine_name)
    lease_id = context.session.exec(query).first()
    if lease_id is not None:
        context.tell(lease_id, "refresh")
