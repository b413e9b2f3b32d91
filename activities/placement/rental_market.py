"""The rental offers of marketplaces as cloud offers of the implied regions of their providers."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlmodel import Session, col, select

from activities.db.tables import Node, Provider, Region
from activities.providers.rental_offers import KnownOffer, Version, known_offers, known_versions
from workflows.contracts.billing import UsageRates
from workflows.contracts.machines import MachineClaim, Shortage
from workflows.contracts.placement import CloudOffer
from workflows.contracts.statuses import NodeStatus, ProviderStatus, RegionStatus
from workflows.rules.catalogue.providers import rented_kinds, traits_of
from workflows.rules.placement.cloud_market import taken_by_another


@dataclass(frozen=True, slots=True)
class RentalInputs:
    """All values from which the rental offers of one implied region are built."""

    region_id: str
    region_name: str
    account_id: str
    provider_id: str
    provider_kind: str
    offers: Version
    """The version of the offers that were read."""


_made: dict[str, tuple[RentalInputs, tuple[CloudOffer, ...]]] = {}


def rental_inputs(session: Session) -> tuple[RentalInputs, ...]:
    """The inputs of the healthy implied regions whose providers are ready and have offers."""
    rows = _regions(session)
    versions = known_versions(session, {row.provider_id for row in rows}) if rows else {}
    return tuple(
        RentalInputs(
            region_id=row.id,
            region_name=row.name,
            account_id=row.account_id,
            provider_id=row.provider_id,
            provider_kind=row.provider_kind,
            offers=versions[row.provider_id],
        )
        for row in rows
        if row.provider_id in versions
    )


def rental_offers(session: Session, inputs: Iterable[RentalInputs]) -> list[CloudOffer]:
    """The offers of these regions; each process caches those of a region until they change."""
    return [offer for each in inputs for offer in _offers_of(session, each)]


def being_rented(
    session: Session, inputs: Iterable[RentalInputs], at: datetime
) -> dict[tuple[str, str], Shortage]:
    """The offers that are one machine each and that nodes have or will have, by provider and scope.

    Each may stand among the offers until these are read again.
    """
    region_ids = {
        each.region_id for each in inputs if traits_of(each.provider_kind).offer_is_machine
    }
    if not region_ids:
        return {}
    live = set(NodeStatus) - {NodeStatus.REMOVING, NodeStatus.ARCHIVED}
    query = select(Node.machine).where(
        col(Node.status).in_(live), col(Node.region_id).in_(region_ids)
    )
    found = [MachineClaim.model_validate(each) for each in session.exec(query) if each is not None]
    return {
        (claim.provider_id, offer.scope): taken_by_another(offer, at)
        for claim in found
        for offer in claim.offers
    }


def _regions(session: Session) -> list[Any]:
    if not (kinds := rented_kinds()):
        return []
    query = (
        select(Region)
        .join(Provider, col(Provider.id) == Region.provider_id)
        .where(
            Region.status == RegionStatus.HEALTHY,
            Provider.status == ProviderStatus.READY,
            col(Region.provider_kind).in_(kinds),
        )
        .order_by(col(Region.id))
    )
    return list(session.exec(query))


def _offers_of(session: Session, inputs: RentalInputs) -> tuple[CloudOffer, ...]:
    cached = _made.get(inputs.region_id)
    if cached is not None and cached[0] == inputs:
        return cached[1]
    known = known_offers(session, inputs.provider_id, inputs.offers)
    made = tuple(_offer(inputs, each) for each in known)
    _made[inputs.region_id] = (inputs, made)
    return made


def _offer(inputs: RentalInputs, known: KnownOffer) -> CloudOffer:
    """There is no usage fee for rented machines, which is for machines of one's own."""
    return CloudOffer(
        offer_id=f"{inputs.region_id}/{known.offer.offer_id}",
        region_id=inputs.region_id,
        region_name=inputs.region_name,
        cloud_region=inputs.provider_kind,
        account_id=inputs.account_id,
        provider_id=inputs.provider_id,
        provider_kind=inputs.provider_kind,
        machine_type=known.offer.machine.machine_type,
        gpu_type=known.offer.machine.gpu_type,
        gpu_count=known.offer.machine.gpu_count,
        cpu_count=known.offer.cpu_count,
        memory_bytes=known.offer.memory_bytes,
        spot=False,
        zones=(known.offer.machine,),
        microcredits_per_hour=known.offer.machine.microcredits_per_hour,
        disk_microcredits_per_gb_month=known.offer.disk_microcredits_per_gb_month,
        price_read_on=known.read_at.date(),
        read_at=known.read_at,
        most_disk_gb=known.offer.most_disk_gb,
        fee=UsageRates(gpu_count=known.offer.machine.gpu_count, cpu_count=known.offer.cpu_count),
    )
