"""The reconciliation at the start of a worker process: what was lost with an earlier one is found
at once, and not only when the timer of its provider is next due."""

import asyncio
from collections.abc import Sequence

import structlog
from sqlmodel import col, select
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import AWAY, database
from activities.db.tables import Provider
from activities.temporal.client import tell
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.statuses import ProviderStatus
from workflows.rules.catalogue.providers import TRAITS

SIGNALS_AT_ONCE = 16

log = structlog.get_logger("worker")


async def reconcile_all() -> Sequence[str]:
    """Have every provider compare its machines with its leases now; the ids of those that will.

    The machine of an archived lease is terminated then, and an orphaned machine is reported. A
    repetition changes nothing: a provider that is asked twice compares once more at most. One that
    cannot be asked is only logged, because its timer, and the start of its workflow, remain.
    """
    slots = asyncio.Semaphore(SIGNALS_AT_ONCE)

    async def ask(provider_id: str) -> str | None:
        async with slots:
            return provider_id if await _ask(provider_id) else None

    try:
        providers = await asyncio.to_thread(_providers)
    except AWAY as cause:
        log.warning("no provider was asked to reconcile", why=type(cause).__name__)
        return []
    answers = await asyncio.gather(*map(ask, providers))
    return [found for found in answers if found is not None]


async def _ask(provider_id: str) -> bool:
    try:
        return await tell(workflow_id_of(provider_id), "reconcile")
    except (RPCError, ApplicationError) as cause:
        log.warning("a provider was not asked to reconcile", provider=provider_id, why=str(cause))
        return False


def _providers() -> list[str]:
    """The providers whose machines end with their leases, by id."""
    kinds = [str(kind) for kind, each in TRAITS.items() if each.is_cloud and each.ends_machines]
    query = select(Provider.id).where(
        col(Provider.kind).in_(kinds), col(Provider.status) != ProviderStatus.ARCHIVED
    )
    with database().read() as session:
        return list(session.exec(query.order_by(col(Provider.id))))
