"""The balance guard: warning the payers of devices and of federated fees of a short runway.

Device fees need no job, and the next wakeup of a job billing may be that of the project's payer.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from sqlmodel import Session, col, func, select
from temporalio import activity

from activities.billing.device_days import DeviceCosts, device_costs
from activities.billing.federated_fees import fees_per_hour, payers_of_fees
from activities.billing.guests import free_of_charge
from activities.billing.payers import credits_name
from activities.billing.runway import ESTIMATED_BELOW_S, payer_forecast
from activities.billing.runway_warnings import WARNING_TYPES, warn_of_runway
from activities.db.session import database
from activities.db.tables import EventRow, LedgerAccount, UsageMeter
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.billing import BalanceForecast
from workflows.contracts.events import BillingEvent
from workflows.effects.billing import BalancesGuarded, GuardBalances
from workflows.rules.billing.runway_warnings import to_warning_s

AT_ONCE = 100
"""The payers of one database transaction; then others write."""


@activity.defn
def guard_balances(_: GuardBalances) -> BalancesGuarded:
    """Warn each payer of devices or of federated fees whose runway has reached a warning, or has
    become longer again; a second call warns nobody."""
    waits: list[int] = []
    with beating_aside():
        with database().read() as session:
            devices = device_costs(session, datetime.now(UTC))
            payer_ids = sorted({*devices, *payers_of_fees(session)})
        for start in range(0, len(payer_ids), AT_ONCE):
            some = payer_ids[start : start + AT_ONCE]
            with database().read() as session:
                forecasts = _forecasts(session, some, devices)
                close = set(_close(session, forecasts))
            waits += _waits(each for name, each in forecasts.items() if name not in close)
            with database().write() as session:
                waits += _waits(_warned(session, payer_id) for payer_id in sorted(close))
    return BalancesGuarded(payers=len(payer_ids), next_s=min(waits, default=None))


def _forecasts(
    session: Session, payer_ids: Sequence[str], devices: Mapping[str, DeviceCosts]
) -> dict[str, BalanceForecast]:
    """The balance forecasts of payers, without an estimate, with one query for all of them."""
    named = {credits_name(payer_id): payer_id for payer_id in payer_ids}
    balances = dict(
        session.exec(
            select(LedgerAccount.name, LedgerAccount.balance_microcredits).where(
                col(LedgerAccount.name).in_(named)
            )
        ).all()
    )
    jobs = dict(
        session.exec(
            select(UsageMeter.payer_id, func.sum(UsageMeter.microcredits_per_hour))
            .where(col(UsageMeter.payer_id).in_(payer_ids), col(UsageMeter.running).is_(True))
            .group_by(col(UsageMeter.payer_id))
        ).all()
    )
    fees = fees_per_hour(session, payer_ids)
    free = free_of_charge(session, payer_ids, datetime.now(UTC))
    costs = {each: devices.get(each, DeviceCosts()) for each in payer_ids}
    return {
        payer_id: BalanceForecast(
            posted_microcredits=0,
            balance_microcredits=balances.get(name, 0),
            device_fees_microcredits=costs[payer_id].uncharged_microcredits,
            burn_microcredits_per_hour=costs[payer_id].microcredits_per_hour
            + int(jobs.get(payer_id) or 0)
            - free.get(payer_id, 0)
            + fees.get(payer_id, 0),
        )
        for name, payer_id in named.items()
    }


def _close(session: Session, forecasts: Mapping[str, BalanceForecast]) -> Iterator[str]:
    """The payers whose runway is short, or was when they were warned of it."""
    newest = (
        select(EventRow.resource_id, func.max(EventRow.position).label("position"))
        .where(
            col(EventRow.resource_id).in_(list(forecasts)),
            col(EventRow.type).in_(WARNING_TYPES),
        )
        .group_by(col(EventRow.resource_id))
        .subquery()
    )
    types = dict(
        session.exec(
            select(EventRow.resource_id, EventRow.type).join(
                newest, newest.c.position == EventRow.position
            )
        ).all()
    )
    for payer_id, forecast in forecasts.items():
        is_warned = types.get(payer_id, BillingEvent.RUNWAY_LONGER) != BillingEvent.RUNWAY_LONGER
        if is_warned or forecast.runway_s <= ESTIMATED_BELOW_S:
            yield payer_id


def _warned(session: Session, payer_id: str) -> BalanceForecast:
    forecast = payer_forecast(session, payer_id)
    warn_of_runway(session, payer_id, forecast)
    return forecast


def _waits(forecasts: Iterator[BalanceForecast]) -> list[int]:
    """The seconds until the next warning of each, where one is left."""
    waits = [to_warning_s(each.runway_s) for each in forecasts]
    return [each for each in waits if each is not None]
