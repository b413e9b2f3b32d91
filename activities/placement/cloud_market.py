"""The cloud market: the offers of clouds and marketplaces to their accounts, and the shortages.

Reading takes a handful of queries, for any number of jobs, offers and zones. The offers of a region
change with the region, its provider and the prices; each process caches the last ones.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

from sqlmodel import Session, col, select

from activities.billing.preferred_credits import left_of
from activities.db.tables import Provider, Region, ShortageRow
from activities.placement.rental_market import (
    RentalInputs,
    being_rented,
    rental_inputs,
    rental_offers,
)
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
class _OfferInputs:
    """All values from which the cloud offers of one region are built."""

    region_id: str
    region_name: str
    account_id: str
    cloud_region: str
    provider_id: str
    provider_kind: str
    is_waived: bool
    fees: tuple[UsageRates, ...]
    """The usage rates of a worker on each machine type, in the order of the catalogue."""
    prices: Version
    """The version of the latest prices of the cloud."""


class _Seller(NamedTuple):
    """A cloud provider kind: our usage fees for its machine types, its catalogue and prices."""

    fees: tuple[UsageRates, ...]
    prices: Version
    catalogue: CloudCatalogue


class _Sale(NamedTuple):
    """One way to buy a machine type, spot or on demand, and its prices."""

    spot: bool
    microcredits_per_hour: int
    disk_microcredits_per_gb_month: int
    read_on: date


_offers: dict[str, tuple[_OfferInputs, tuple[CloudOffer, ...]]] = {}
_all: tuple[tuple[_OfferInputs | RentalInputs, ...], CloudOffers] = ((), CloudOffers(()))


def market(session: Session, at: datetime) -> Market:
    """The cloud offers of healthy regions of ready providers, and the present shortages."""
    global _all  # noqa: PLW0603 - one for each process
    regions, rentals = _regions(session), rental_inputs(session)
    if not regions and not rentals:
        return Market(CloudOffers(()))
    provider_ids = {row.provider_id for row in (*regions, *rentals)}
    preferred = _preferred(session, provider_ids, at)
    sellers = {
        kind: _Seller(_fees(kind, at), *known_prices(session, kind))
        for kind in {row.provider_kind for row in regions}
    }
    sold = tuple(_inputs_of(row, sellers[row.provider_kind], preferred) for row in regions)
    before, made = _all
    if (*sold, *rentals) != before:
        of_clouds = [
            offer
            for inputs in sold
            for offer in _sold(inputs, sellers[inputs.provider_kind].catalogue)
        ]
        made = CloudOffers([*of_clouds, *rental_offers(session, rentals)])
        _all = ((*sold, *rentals), made)
    short = being_rented(session, rentals, at) | _shortages(session, provider_ids, at)
    return Market(made, short, preferred)


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


def _preferred(session: Session, provider_ids: set[str], at: datetime) -> frozenset[str]:
    """Providers that placement prefers, because their preferred credits are not spent yet."""
    given = select(Provider).where(
        col(Provider.id).in_(provider_ids),
        col(Provider.preferred_credits_microcredits) > 0,
    )
    left = left_of(session, session.exec(given).all(), at)
    return frozenset(provider_id for provider_id, amount in left.items() if amount > 0)


def _shortages(
    session: Session, provider_ids: set[str], at: datetime
) -> dict[tuple[str, str], Shortage]:
    query = select(ShortageRow).where(
        col(ShortageRow.provider_id).in_(provider_ids),
        col(ShortageRow.until) > at,
    )
    return {
        (row.provider_id, row.scope): Shortage(scope=row.scope, reason=row.reason, until=row.until)
        for row in session.exec(query)
    }


def _fees(kind: str, at: datetime) -> tuple[UsageRates, ...]:
    """The usage fees for GPUs; the cloud's price includes the CPUs of a leased machine."""
    return tuple(
        usage_rates(machine.gpu_type, machine.gpu_count, machine.cpu_count, at, cpu_core_hour=0)
        for machine in catalogue_of(kind).machines
    )


def _inputs_of(row: Any, seller: _Seller, preferred: frozenset[str]) -> _OfferInputs:
    """The inputs of a region; a waived usage fee is waived while the preferred credits last."""
    return _OfferInputs(
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


def _sold(inputs: _OfferInputs, catalogue: CloudCatalogue) -> tuple[CloudOffer, ...]:
    """The cloud offers of a region; a machine type without a zone or price has no offer."""
    cached = _offers.get(inputs.region_id)
    if cached is not None and cached[0] == inputs:
        return cached[1]
    region = catalogue.region(inputs.cloud_region)
    made = () if region is None else tuple(_offers_of(inputs, catalogue, region))
    _offers[inputs.region_id] = (inputs, made)
    return made


def _offers_of(
    inputs: _OfferInputs, catalogue: CloudCatalogue, region: CloudRegion
) -> Iterable[CloudOffer]:
    disk = catalogue.boot_disk_microcredits_per_gb_month(region.name)
    for machine, fee in zip(catalogue.machines, inputs.fees, strict=True):
        zones = region.zones_of(machine.gpu_type)
        price = catalogue.price(machine, region.name)
        if not zones or price is None:
            continue
        kinds = {True: price.spot_microcredits_per_hour}
        if machine.on_demand:
            kinds[False] = price.on_demand_microcredits_per_hour
        for spot, hourly in kinds.items():
            sale = _Sale(spot, hourly, disk, price.read_on)
            yield _offer(inputs, machine, fee, zones, sale)


def _offer(
    inputs: _OfferInputs,
    machine: MachineType,
    fee: UsageRates,
    zones: tuple[str, ...],
    sale: _Sale,
) -> CloudOffer:
    spot, price = sale.spot, sale.microcredits_per_hour
    kind = "spot" if spot else "on-demand"
    gpus = f"{machine.gpu_count}x{machine.gpu_type}" if machine.gpu_type else "cpu"
    return CloudOffer(
        offer_id=f"{inputs.region_id}/{machine.name}/{gpus}/{kind}",
        region_id=inputs.region_id,
        region_name=inputs.region_name,
        cloud_region=inputs.cloud_region,
        account_id=inputs.account_id,
        provider_id=inputs.provider_id,
        provider_kind=inputs.provider_kind,
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
        disk_microcredits_per_gb_month=sale.disk_microcredits_per_gb_month,
        price_read_on=sale.read_on,
        fee=fee.model_copy(update={"microcredits_per_gpu_hour": 0} if inputs.is_waived else {}),
    )
