"""Preferred credits: what is left of the amount until which placement prefers a provider.

They are counted down by the costs of the provider's machines, of running ones until now. What was
spent before the amount was set does not count, and neither does what is spent after it is used up.
"""

from collections.abc import Collection
from datetime import datetime

from sqlmodel import Session

from activities.billing.machine_costs import spent_microcredits
from activities.db.tables import Provider


def left_of(session: Session, providers: Collection[Provider], at: datetime) -> dict[str, int]:
    """What is left at an instant, by provider; providers without an amount are left out."""
    given = [each for each in providers if each.preferred_credits_microcredits]
    if not given:
        return {}
    spent = spent_microcredits(session, [each.id for each in given], at)
    return {
        each.id: (each.preferred_credits_microcredits or 0) - _used(each, spent.get(each.id, 0))
        for each in given
    }


def set_amount(session: Session, provider: Provider, amount: int | None, at: datetime) -> None:
    """Set, raise, lower or end the amount; what is used of the present one stays used.

    amount: microcredits altogether, with those that are used; None: the preference ends.
    """
    spent = spent_microcredits(session, [provider.id], at).get(provider.id, 0)
    provider.preferred_from_microcredits = spent - _used(provider, spent)
    provider.preferred_credits_microcredits = amount


def _used(provider: Provider, spent: int) -> int:
    """What is used of the amount, when so much was spent ever: no more than the amount."""
    since = max(0, spent - provider.preferred_from_microcredits)
    return min(since, provider.preferred_credits_microcredits or 0)
