"""Tables of providers, regions, shortages, rental offers, and the prices that clouds publish."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant
from activities.db.tables.columns import RemovableRow, index_where, json_column


class Provider(RemovableRow, table=True):
    __tablename__ = "providers"
    kind: str
    payment_mode: str = "credits"
    preferred_credits_microcredits: int | None = Field(default=None, sa_type=BigInteger)
    preferred_from_microcredits: int = Field(
        default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": "0"}
    )
    """What its machines had cost when its preferred credits began to be counted down."""
    fee_waived: bool = False
    """Whether there is no usage fee while its preferred credits last."""
    checks: list[dict[str, Any]] = json_column()
    credentials: str | None = None
    """The reference of the credential, such as `store://providers/gcp/prv-…`; never the key."""
    cloud: dict[str, Any] | None = json_column(nullable=True)
    """The facts of the key that are not secret: project, service account, key id."""
    resources: list[dict[str, Any]] | None = json_column(nullable=True)
    """The cloud resources that the platform created for the provider as a whole."""
    reconciled_at: datetime | None = Field(default=None, sa_type=Instant)
    """When the last complete reconciliation of its machines with its leases began."""


class Region(RemovableRow, table=True):
    __tablename__ = "regions"
    provider_id: str = Field(foreign_key="providers.id", index=True)
    provider_kind: str
    storage_mode: str = "local"
    cloud_region: str | None = None
    """The cloud's name of the region, such as `us-central1`; None: the machines have owners."""
    storage_node_class: str | None = None
    public: bool = False
    exclusive_nodes: bool = True
    uses_internal_addresses: bool = False
    """Whether a machine without an external address is reached at its internal one."""
    node_root: str | None = None
    own_worker: bool = False
    """Whether a worker process in the region's own network serves it, and no shared one."""
    allows_apt_packages: bool = False
    """Whether `apt_packages` of jobs are installed on the region's machines themselves."""
    guest_policy: dict[str, Any] | None = json_column(nullable=True)
    """Which guests the region takes, see `GuestPolicy`; None: all, where it is public."""
    relaxed_requirements: list[str] = json_column()
    options: dict[str, Any] = json_column()
    __table_args__ = (
        index_where(
            "status != 'archived'",
            "regions_name_of_account",
            "account_id",
            "name",
            unique=True,
        ),
        index_where(
            "status != 'archived' AND cloud_region IS NOT NULL",
            "regions_cloud_region_of_provider",
            "provider_id",
            "cloud_region",
            unique=True,
        ),
    )


class ShortageRow(SQLModel, table=True):
    """A shortage at a provider; until the instant `until`, no job asks for the same scope again."""

    __tablename__ = "shortages"
    provider_id: str = Field(primary_key=True, foreign_key="providers.id")
    scope: str = Field(primary_key=True)
    reason: str = Field(sa_type=Text)
    until: datetime = Field(sa_type=Instant)


class CloudPriceRow(SQLModel, table=True):
    """The latest price that a cloud has published for one item, as far as it could be read.

    counted: the kind of the item, `series` (a CPU for an hour), `gpu` (an hour) or `disk` (a GB
    for a month); source: where the price was read.
    """

    __tablename__ = "cloud_prices"
    provider_kind: str = Field(primary_key=True)
    counted: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    cloud_region: str = Field(primary_key=True)
    on_demand_nanodollars: int = Field(sa_type=BigInteger)
    spot_nanodollars: int = Field(sa_type=BigInteger)
    source: str = Field(sa_type=Text)
    read_at: datetime = Field(sa_type=Instant)


class RentalOfferRow(SQLModel, table=True):
    """A rental offer of a marketplace to one provider, as it was last read.

    offer_id: see `RentalOffer.offer_id`; offer: the whole `RentalOffer`. The offers of a provider
    are replaced together.
    """

    __tablename__ = "rental_offers"
    provider_id: str = Field(primary_key=True, foreign_key="providers.id")
    offer_id: str = Field(primary_key=True)
    offer: dict[str, Any] = json_column()
    read_at: datetime = Field(sa_type=Instant)


class ColabEndpointRow(SQLModel, table=True):
    """The endpoint of a provider's notebook: where it was announced, until when, and who holds it.

    Each announcement replaces the one before and is another endpoint, also at the same address.
    The row is there from the first one-time token on.
    """

    __tablename__ = "colab_endpoints"
    provider_id: str = Field(primary_key=True, foreign_key="providers.id")
    token_sha256: str | None = Field(default=None, unique=True)
    """Of the one-time token that announces the next endpoint; None: the last one was used."""
    token_expires_at: datetime | None = Field(default=None, sa_type=Instant)
    endpoint_id: str | None = None
    """None: nothing was announced yet."""
    host: str = ""
    port: int = 22
    ssh_user: str = "root"
    host_key: str = ""
    """The SSH host key as in an OpenSSH public key file: type and base64."""
    minion_id: str = ""
    """Its fingerprint `SHA256:…`, the only one that is let in."""
    gpu_type: str | None = None
    gpu_count: int = 0
    cpu_count: int = 0
    memory_bytes: int = Field(default=0, sa_type=BigInteger)
    announced_at: datetime | None = Field(default=None, sa_type=Instant)
    expires_at: datetime | None = Field(default=None, sa_type=Instant)
    held_by: str | None = None
    """The machine name of the lease that holds it; None: no lease does."""
    held_at: datetime | None = Field(default=None, sa_type=Instant)


class ProviderCallSlot(SQLModel, table=True):
    """When the next call of one kind may be made with one key, at a marketplace that limits calls.

    key_sha256: of the API's address and the key.
    """

    __tablename__ = "provider_call_slots"
    key_sha256: str = Field(primary_key=True)
    call: str = Field(primary_key=True)
    free_at: datetime = Field(sa_type=Instant)
