"""What clouds sell to the accounts whose regions are there, with what is known to be short.

A handful of queries whatever the number of jobs, offers and zones. Offers change with a region, its
provider and a price; each process remembers those of every region as it last stood.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

from sqlmodel import Session, col, select

from activities.billing.machine_costs import spent_microcredits
from activities.db.tables import Provider, Region, ShortageRow
from activities.providers.prices import Version, catalogue_of, known_prices
from activities.providers.registry import kind_of
from workflows.contracts.billing import UsageRates
from workflows.contracts.machines import MachineOffer, Shortage
from workflows.contracts.placement import CloudOffer
from workflows.contracts.statuses import ProviderStatus, RegionStatus
from workflows.rules.billing.usage_fees import usage_rates
from workflows.rules.catalogue.clouds import CloudCatalogue, CloudRegion, MachineType
from workflows.rules.catalogue.providers import cloud_kinds
from workflows.rules.placement.cloud_market import CloudOffers, Market

GIB = 1024**3


@dataclass(frozen=True, slots=True)
class _Standing:
    """All that the offers of one region are made of."""

    region_id: str
    region_name: str
    account_id: str
    cloud_region: str
    provider_id: str
    provider_kind: str
    is_waived: bool
    fees: tuple[UsageRates, ...]
    """Of a worker of each machine type of the catalogue, in its order."""
    prices: Version
    """Which prices its cloud has told at last."""


class _Seller(NamedTuple):
    """A kind of cloud: our fees for its machine types, and what it sells at which prices."""

    fees: tuple[UsageRates, ...]
    prices: Version
    catalogue: CloudCatalogue


class _Kept(NamedTuple):
    """One of the ways in which a machine type is sold, and what it costs so."""

    spot: bool
    microcredits_per_hour: int
    disk_microcredits_per_gb_month: int
    read_on: date


_offers: dict[str, tuple[_Standing, tuple[CloudOffer, ...]]] = {}
_all: tuple[tuple[_Standing, ...], CloudOffers] = ((), CloudOffers(()))


def market(session: Session, at: datetime) -> Market:
    """What is to be had in healthy regions of ready providers, and what is known to be short."""
    global _all  # noqa: PLW0603 - one for each process
    regions = _regions(session)
    if not regions:
        return Market(CloudOffers(()))
    preferred = _preferred(session, regions, at)
    sellers = {
        kind: _Seller(_fees(kind, at), *known_prices(session, kind))
        for kind in {row.provider_kind for row in regions}
    }
    standings = tuple(_standing(row, sellers[row.provider_kind], preferred) for row in regions)
    before, made = _all
    if standings != before:
        made = CloudOffers(
            offer
            for standing in standings
            for offer in _sold(standing, sellers[standing.provider_kind].catalogue)
        )
        _all = (standings, made)
    return Market(made, _shortages(session, regions, at), preferred)


def _regions(session: Session) -> list[Any]:
    query = (
        select(  # type: ignore[call-overload]
            Region.id,
            Region.name,
            Region.account_id,
            Region.cloud_region,
            Region.provider_id,
            Region.provider_kind,
            Provider.fee_waived,
            Provider.preferred_credits_microcredits,
        )
        .join(Provider, col(Provider.id) == Region.provider_id)
        .where(
            Region.status == RegionStatus.HEALTHY,
            Provider.status == ProviderStatus.READY,
            col(Region.provider_kind).in_(cloud_kinds()),
        )
        .order_by(col(Region.id))
    )
    found = session.execute(query).all()
    return [row for row in found if kind_of(row.provider_kind).catalogue is not None]


def _preferred(session: Session, regions: list[Any], at: datetime) -> frozenset[str]:
    """Providers that are used before anything else, as what they were given is not spent yet."""
    given = {row.provider_id: row.preferred_credits_microcredits or 0 for row in regions}
    asked = {provider_id for provider_id, amount in given.items() if amount > 0}
    if not asked:
        return frozenset()
    spent = spent_microcredits(session, asked, at)
    return frozenset(name for name in asked if spent.get(name, 0) < given[name])


def _shortages(
    session: Session, regions: list[Any], at: datetime
) -> dict[tuple[str, str], Shortage]:
    query = select(ShortageRow).where(
        col(ShortageRow.provider_id).in_({row.provider_id for row in regions}),
        col(ShortageRow.until) > at,
    )
    return {
        (row.provider_id, row.scope): Shortage(scope=row.scope, reason=row.reason, until=row.until)
        for row in session.exec(query)
    }


def _fees(kind: str, at: datetime) -> tuple[UsageRates, ...]:
    """For GPUs alone: the CPUs of a machine that is made for a job are in its cloud's price."""
    return tuple(
        usage_rates(machine.gpu_type, machine.gpu_count, machine.cpu_count, at, cpu_core_hour=0)
        for machine in catalogue_of(kind).machines
    )


def _standing(row: Any, seller: _Seller, preferred: frozenset[str]) -> _Standing:
    """Its fee is waived, where an administrator has said so, while its credits last."""
    return _Standing(
        region_id=row.id,
        region_name=row.name,
        account_id=row.account_id,
        cloud_region=row.cloud_region,
        provider_id=row.provider_id,
        provider_kind=row.provider_kind,
        is_waived=row.fee_waived and row.provider_id in preferred,
        fees=seller.fees,
        prices=seller.prices,
    )


def _sold(standing: _Standing, catalogue: CloudCatalogue) -> tuple[CloudOffer, ...]:
    """What the catalogue says of the region; what has no zone or no price there is not sold."""
    remembered = _offers.get(standing.region_id)
    if remembered is not None and remembered[0] == standing:
        return remembered[1]
    place = catalogue.region(standing.cloud_region)
    made = () if place is None else tuple(_offers_of(standing, catalogue, place))
    _offers[standing.region_id] = (standing, made)
    return made


def _offers_of(
    standing: _Standing, catalogue: CloudCatalogue, place: CloudRegion
) -> Iterable[CloudOffer]:
    disk = catalogue.boot_disk_microcredits_per_gb_month(place.name)
    for machine, fee in zip(catalogue.machines, standing.fees, strict=True):
        zones = place.zones_of(machine.gpu_type)
        price = catalogue.price(machine, place.name)
        if not zones or price is None:
            continue
        kinds = {True: price.spot_microcredits_per_hour}
        if machine.on_demand:
            kinds[False] = price.on_demand_microcredits_per_hour
        for spot, hourly in kinds.items():
            kept = _Kept(spot, hourly, disk, price.read_on)
            yield _offer(standing, machine, fee, zones, kept)


def _offer(
    standing: _Standing,
    machine: MachineType,
    fee: UsageRates,
    zones: tuple[str, ...],
    kept: _Kept,
) -> CloudOffer:
    spot, price = kept.spot, kept.microcredits_per_hour
    kind = "spot" if spot else "on-demand"
    gpus = f"{machine.gpu_count}x{machine.gpu_type}" if machine.gpu_type else "cpu"
    return CloudOffer(
        offer_id=f"{standing.region_id}/{machine.name}/{gpus}/{kind}",
        region_id=standing.region_id,
        region_name=standing.region_name,
        cloud_region=standing.cloud_region,
        account_id=standing.account_id,
        provider_id=standing.provider_id,
        provider_kind=standing.provider_kind,
        machine_type=machine.name,
        gpu_type=machine.gpu_type,
        gpu_count=machine.gpu_count,
        cpu_count=machine.cpu_count,
        memory_bytes=int(machine.memory_gib * GIB),
        spot=spot,
        zones=tuple(
            MachineOffer(
                zone=zone,
                machine_type=machine.name,
                gpu_type=machine.gpu_type,
                gpu_count=machine.gpu_count,
                spot=spot,
                microcredits_per_hour=price,
                price_is_estimate=True,
            )
            for zone in zones
        ),
        microcredits_per_hour=price,
        disk_microcredits_per_gb_month=kept.disk_microcredits_per_gb_month,
        price_read_on=kept.read_on,
        fee=fee.model_copy(update={"microcredits_per_gpu_hour": 0} if standing.is_waived else {}),
    )
