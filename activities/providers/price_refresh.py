"""The refresh of the prices of one kind of cloud: read once, and stored."""

import asyncio
from datetime import UTC, datetime
from functools import partial

from sqlmodel import col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Provider
from activities.providers.base import RequestRefused, Unavailable
from activities.providers.calls import call_provider
from activities.providers.prices import keep_prices
from activities.providers.registry import kind_of
from activities.temporal.client import tell
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.providers import PricesState
from workflows.contracts.statuses import ProviderStatus
from workflows.effects.providers import PricesRefreshed, RefreshPrices
from workflows.rules.catalogue.price_lists import PriceList
from workflows.rules.counts import counted

MOST_NAMED = 5
"""How many rejected prices a message lists by name."""


@activity.defn
async def refresh_prices(command: RefreshPrices) -> PricesRefreshed:
    """Read the prices with the first provider of the kind whose key may; a repeat changes nothing.

    A provider whose key may not is notified, and the stored prices stay.
    Raises: Unavailable, when the cloud does not answer, so that Temporal retries.
    """
    kind = command.provider_kind
    refused: list[str] = []
    for provider_id in await asyncio.to_thread(_ready, kind):
        try:
            found = await call_provider(provider_id, partial(_read, kind, provider_id))
        except RequestRefused as error:
            refused.append(f"{provider_id}: {error}")
            await _notify(provider_id, f"they cannot be read: {error}")
        except Unavailable as error:
            raise ApplicationError(f"{provider_id}: prices: {error}", type=error.kind) from error
        else:
            kept = await asyncio.to_thread(_keep, kind, found)
            await _notify(provider_id, _trouble(found))
            return PricesRefreshed(
                kept=kept, rejected=found.rejected[:MOST_NAMED], refused=tuple(refused)
            )
    return PricesRefreshed(refused=tuple(refused))


def _read(kind: str, provider_id: str) -> PriceList:
    found = kind_of(kind)
    return found.required("prices", found.prices)(provider_id)


def _ready(kind: str) -> list[str]:
    """The ready providers of a kind; none if the kind has only the prices of its files."""
    query = (
        select(Provider.id)
        .where(col(Provider.kind) == kind, col(Provider.status) == ProviderStatus.READY)
        .order_by(col(Provider.id))
    )
    with database().read() as session:
        found = list(session.exec(query))
    return found if found and kind_of(kind).prices else []


def _keep(kind: str, found: PriceList) -> int:
    with database().write(f"prices of {kind}") as session:
        return keep_prices(session, kind, found.lines, datetime.now(UTC))


def _trouble(found: PriceList) -> str:
    """What is wrong with a price list; empty when nothing is."""
    if not found.lines:
        return "none of them is of a part in the catalogue"
    if not found.rejected:
        return ""
    more = len(found.rejected) - MOST_NAMED
    named = "; ".join(found.rejected[:MOST_NAMED])
    return f"{counted(len(found.rejected), 'price')} not valid: {named}" + f"; and {more} more" * (
        more > 0
    )


async def _notify(provider_id: str, trouble: str) -> None:
    """Signal the trouble to the provider's workflow, which records a change of it.

    A failed signal is repeated by the next refresh, a day later.
    """
    try:
        await tell(workflow_id_of(provider_id), "prices_state", PricesState(trouble=trouble))
    except (RPCError, ApplicationError) as cause:
        activity.logger.warning("%s: prices: %s", provider_id, cause)
