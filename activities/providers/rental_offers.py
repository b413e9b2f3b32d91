"""The rental offers of marketplaces in rows: replaced when they are read, and the newest ones."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import func
from sqlmodel import Session, col, delete, select

from activities.db.tables import Provider, RentalOfferRow
from workflows.contracts.machines import RentalOffer


class KnownOffer(NamedTuple):
    """A rental offer, and when it was read."""

    offer: RentalOffer
    read_at: datetime


Version = tuple[int, datetime | None]
"""The number of a provider's rental offers, and when they were read."""
_known: dict[str, tuple[Version, tuple[KnownOffer, ...]]] = {}


def keep_offers(
    session: Session, provider_id: str, offers: Iterable[RentalOffer], at: datetime
) -> int:
    """Replace the offers of a provider, and return how many there are. Of two offers with one id
    the cheaper one is kept."""
    session.get_one(Provider, provider_id, with_for_update=True)
    cheapest: dict[str, RentalOffer] = {}
    for offer in offers:
        known = cheapest.get(offer.offer_id)
        if known is None or _price(offer) < _price(known):
            cheapest[offer.offer_id] = offer
    session.exec(delete(RentalOfferRow).where(col(RentalOfferRow.provider_id) == provider_id))
    session.add_all(
        RentalOfferRow(
            provider_id=provider_id,
            offer_id=offer_id,
            offer=offer.model_dump(mode="json"),
            read_at=at,
        )
        for offer_id, offer in cheapest.items()
    )
    return len(cheapest)


def keep_offer(
    session: Session, provider_id: str, offer_id: str, offer: RentalOffer | None, at: datetime
) -> None:
    """Replace one offer of a provider, which was read alone. None: it is not sold any more."""
    session.get_one(Provider, provider_id, with_for_update=True)
    row = session.get(RentalOfferRow, (provider_id, offer_id))
    if offer is None:
        if row is not None:
            session.delete(row)
        return
    stored = offer.model_dump(mode="json")
    if row is None:
        row = RentalOfferRow(provider_id=provider_id, offer_id=offer_id, offer=stored, read_at=at)
    row.offer, row.read_at = stored, at
    session.add(row)


def known_offer(session: Session, provider_id: str, offer_id: str) -> KnownOffer | None:
    """One offer of a provider as it was read last; None: it is not known."""
    row = session.get(RentalOfferRow, (provider_id, offer_id))
    if row is None:
        return None
    return KnownOffer(RentalOffer.model_validate(row.offer), row.read_at)


def known_versions(session: Session, provider_ids: Iterable[str]) -> dict[str, Version]:
    """The versions of the offers of these providers; a provider without offers has none."""
    query = (
        select(RentalOfferRow.provider_id, func.count(), func.max(RentalOfferRow.read_at))
        .where(col(RentalOfferRow.provider_id).in_(sorted(provider_ids)))
        .group_by(col(RentalOfferRow.provider_id))
    )
    return {provider_id: (count, last) for provider_id, count, last in session.exec(query)}


def known_offers(session: Session, provider_id: str, version: Version) -> Sequence[KnownOffer]:
    """The offers of a provider in this version, by their ids; each process caches the last ones."""
    known = _known.get(provider_id)
    if known is None or known[0] != version:
        query = (
            select(RentalOfferRow)
            .where(col(RentalOfferRow.provider_id) == provider_id)
            .order_by(col(RentalOfferRow.offer_id))
        )
        rows = session.exec(query).all()
        known = (
            version,
            tuple(KnownOffer(RentalOffer.model_validate(row.offer), row.read_at) for row in rows),
        )
        _known[provider_id] = known
    return known[1]


def _price(offer: RentalOffer) -> int:
    return offer.machine.microcredits_per_hour
