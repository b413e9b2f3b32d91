"""What clouds tell of their prices, asked once for each kind of cloud, and kept."""

import asyncio
from datetime import UTC, datetime

from sqlmodel import col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Provider
from activities.providers.base import RequestRefused, Unavailable
from activities.providers.machines import provider_threads
from activities.providers.prices import keep_prices
from activities.providers.registry import kind_of
from activities.temporal.client import tell
from activities.temporal.heartbeats import heartbeating
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.providers import PricesState
from workflows.contracts.statuses import ProviderStatus
from workflows.effects.providers import PricesRefreshed, RefreshPrices
from workflows.rules.catalogue.price_lists import PriceList
from workflows.rules.catalogue.providers import cloud_kinds

MOST_TOLD = 5
"""Prices that could not be, of which people are told by name."""


@activity.defn
async def refresh_prices(_: RefreshPrices) -> PricesRefreshed:
    """Ask with the first provider of each kind that is allowed to; a second time changes nothing.

    Those that are not are told so, and what is known stays. Raises: Unavailable, where a cloud has
    not answered: it is asked again.
    """
    refreshed = PricesRefreshed()
    async with heartbeating():
        for kind in cloud_kinds():
            refreshed = refreshed.plus(await _refresh(kind))
    return refreshed


async def _refresh(kind: str) -> PricesRefreshed:
    refused: list[str] = []
    for provider_id in await asyncio.to_thread(_ready, kind):
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                provider_threads(), _read, kind, provider_id
            )
        except RequestRefused as error:
            refused.append(f"{provider_id}: {error}")
            await _tell(provider_id, f"they cannot be read: {error}")
        except Unavailable as error:
            raise ApplicationError(f"{provider_id}: prices: {error}", type=error.kind) from error
        else:
            kept = await asyncio.to_thread(_keep, kind, found)
            await _tell(provider_id, _words(found))
            return PricesRefreshed(
                kept=kept, rejected=found.rejected[:MOST_TOLD], refused=tuple(refused)
            )
    return PricesRefreshed(refused=tuple(refused))


def _read(kind: str, provider_id: str) -> PriceList:
    found = kind_of(kind)
    return found.required("prices", found.prices)(provider_id)


def _ready(kind: str) -> list[str]:
    """Providers whose cloud may be asked; none of a kind that keeps the prices of its files."""
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


def _words(found: PriceList) -> str:
    """What is wrong with it; empty: nothing."""
    if not found.lines:
        return "nothing that is known here is among them"
    if not found.rejected:
        return ""
    more = len(found.rejected) - MOST_TOLD
    told = "; ".join(found.rejected[:MOST_TOLD])
    return f"{len(found.rejected)} cannot be: {told}" + f"; and {more} more" * (more > 0)


async def _tell(provider_id: str, trouble: str) -> None:
    """Its people are told when it changes; a day later it is told again."""
    try:
        await tell(workflow_id_of(provider_id), "prices_state", PricesState(trouble=trouble))
    except (RPCError, ApplicationError) as cause:
        activity.logger.warning("%s: prices: %s", provider_id, cause)
