"""The refresh of the rental offers of one provider kind, for each of its ready providers."""

import asyncio
from datetime import UTC, datetime
from functools import partial

from sqlmodel import col, select
from temporalio import activity

from activities.db.session import database
from activities.db.tables import Provider
from activities.providers.base import ProviderError
from activities.providers.calls import call_provider
from activities.providers.registry import kind_of
from activities.providers.rental_offers import keep_offers
from workflows.contracts.machines import RentalOffer
from workflows.contracts.statuses import ProviderStatus
from workflows.effects.providers import OffersRefreshed, RefreshOffers


@activity.defn
async def refresh_offers(command: RefreshOffers) -> OffersRefreshed:
    """Read the offers of every ready provider of the kind; a repeat replaces them again.

    A provider whose offers cannot be read keeps those that it has, and holds up no other one.
    """
    kept, refused = 0, []
    for provider_id in await asyncio.to_thread(_ready, command.provider_kind):
        try:
            offers = await call_provider(
                provider_id, partial(_read, command.provider_kind, provider_id)
            )
        except ProviderError as error:
            activity.logger.warning("%s: offers: %s", provider_id, error)
            refused.append(f"{provider_id}: {error}")
        else:
            kept += await asyncio.to_thread(_keep, provider_id, offers)
    return OffersRefreshed(kept=kept, refused=tuple(refused))


def _read(kind: str, provider_id: str) -> tuple[RentalOffer, ...]:
    found = kind_of(kind)
    return found.required("offers", found.offers)(provider_id)


def _ready(kind: str) -> list[str]:
    """The ready providers of a kind; none if the kind sells by a catalogue."""
    query = (
        select(Provider.id)
        .where(col(Provider.kind) == kind, col(Provider.status) == ProviderStatus.READY)
        .order_by(col(Provider.id))
    )
    with database().read() as session:
        found = list(session.exec(query))
    return found if found and kind_of(kind).offers else []


def _keep(provider_id: str, offers: tuple[RentalOffer, ...]) -> int:
    with database().write(f"offers of {provider_id}") as session:
        return keep_offers(session, provider_id, offers, datetime.now(UTC))
