"""The costs of leased machines by provider, added up in the database."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import func
from sqlmodel import Session, col, select

from activities.db.elapsed import elapsed_s
from activities.db.tables import Lease
from workflows.rules.billing.metering import HOUR_S


def spent_microcredits(
    session: Session, provider_ids: Iterable[str], at: datetime
) -> dict[str, int]:
    """The cost of all leases by provider until an instant, including machines given up earlier.

    The cost of each lease is rounded as `cumulative_microcredits` rounds. Providers without
    leases are left out.
    """
    offered = col(Lease.offer)["microcredits_per_hour"].as_integer()
    price = func.coalesce(func.nullif(col(Lease.microcredits_per_hour), 0), offered, 0)
    seconds = elapsed_s(col(Lease.began_at), func.coalesce(col(Lease.ended_at), at))
    cost = func.coalesce((2 * price * seconds + HOUR_S) // (2 * HOUR_S), 0)
    query = (
        select(Lease.provider_id, func.sum(col(Lease.earlier_microcredits) + cost))
        .where(col(Lease.provider_id).in_(set(provider_ids)))
        .group_by(col(Lease.provider_id))
    )
    return {provider_id: int(spent) for provider_id, spent in session.exec(query)}
