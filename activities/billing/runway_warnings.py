"""The warnings of a payer's runway: events of its account."""

from datetime import UTC, datetime

from sqlmodel import Session, col, select

from activities.db.session import advisory_lock
from activities.db.tables import EventRow
from activities.lifecycles.platform_events import append_account_event
from workflows.contracts.billing import MICROCREDITS, BalanceForecast
from workflows.contracts.events import BillingEvent, Event
from workflows.rules.billing.runway_warnings import WARNINGS, warning_level

WARNING_TYPES = tuple(each.value for each in BillingEvent)


def warn_of_runway(session: Session, payer_id: str, forecast: BalanceForecast) -> None:
    """Add an event to the payer's account when its runway has reached another warning, once.

    A runway that has become clearly longer is an event too, after which it is warned of again.
    """
    if not forecast.burn_microcredits_per_hour:
        return
    known = _known_level(session, payer_id)
    if warning_level(forecast.runway_s, known) == known:
        return
    advisory_lock(session, f"events/{payer_id}")
    known = _known_level(session, payer_id)
    level = warning_level(forecast.runway_s, known)
    if level != known:
        append_account_event(session, payer_id, _warning(forecast, level, known), datetime.now(UTC))


def _known_level(session: Session, payer_id: str) -> int:
    """The level that the newest event about the payer's runway says."""
    query = (
        select(EventRow.details)
        .where(
            EventRow.resource_id == payer_id,
            col(EventRow.type).in_(WARNING_TYPES),
        )
        .order_by(col(EventRow.position).desc())
    )
    newest = session.exec(query.limit(1)).first()
    return int(newest["level"]) if newest else 0


def _warning(forecast: BalanceForecast, level: int, known: int) -> Event:
    runway_s = int(forecast.runway_s)
    left = forecast.estimated_microcredits / MICROCREDITS
    lasts = f"the credits (about {left:.2f}) last {runway_s // 60} min at the present use"
    then = "then jobs end, the newest first"
    if forecast.device_fees_microcredits:
        then += ", and nothing is deployed; devices run on and are charged"
    is_shorter = level > known
    return Event(
        type=WARNINGS[level - 1][1] if is_shorter else BillingEvent.RUNWAY_LONGER,
        message=f"{lasts}; {then}" if is_shorter else lasts,
        details={
            "level": level,
            "runway_s": runway_s,
            "balance_microcredits": forecast.balance_microcredits,
            "device_fees_microcredits": forecast.device_fees_microcredits,
            "unposted_microcredits": forecast.unposted_microcredits,
            "burn_microcredits_per_hour": forecast.burn_microcredits_per_hour,
        },
    )
