"""The balance forecast of a payer, and what follows when its runway changes."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, and_, case, func, or_
from sqlmodel import Session, col, select

from activities.billing.device_days import DeviceCosts, device_costs
from activities.billing.federated_fees import fees_per_hour, is_paid_by, unposted_fees
from activities.billing.guests import free_of_charge, is_of_guest, reserved_microcredits
from activities.billing.ledger import balance_of
from activities.billing.payers import credits_name
from activities.billing.runway_warnings import warn_of_runway
from activities.db.tables import Job, LedgerAccount, UsageMeter
from activities.outbox.requests import enqueue
from activities.settings import settings
from workflows.contracts.billing import BalanceForecast
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.metering import cumulative_microcredits
from workflows.rules.billing.runway_warnings import ends_early_s, to_warning_s
from workflows.rules.billing.wakeups import runway_level

ESTIMATED_BELOW_S = 48 * 3600
"""The runway below which usage that is not posted is estimated, in time for the first warning."""


def balance_forecast(
    session: Session, meters: Sequence[UsageMeter], posted: int
) -> BalanceForecast:
    """The balance forecast of the payer of a job's usage meters, over all its running jobs.

    posted: microcredits that the caller has just posted on these usage meters.
    """
    costs = any(meter.microcredits_per_hour for meter in meters)
    return _forecast_of(session, meters[0].payer_id, meters[0].job_id, posted, costs=costs)


def creator_forecast(
    session: Session, meters: Sequence[UsageMeter], posted: int
) -> BalanceForecast | None:
    """The balance forecast of who pays the federated fee of a job; None: nobody does.

    posted: as the caller's answer has it; the fee is no part of it.
    """
    payer_id = meters[0].federated_payer_id
    if payer_id is None or not meters[0].federated_microcredits_per_hour:
        return None
    return _forecast_of(session, payer_id, meters[0].job_id, posted, costs=True)


def shorter(of_project: BalanceForecast, of_creator: BalanceForecast | None) -> BalanceForecast:
    """The forecast of the project's payer, or that of the creator's where it ends sooner."""
    if of_creator is None or _lasts_s(of_creator) >= _lasts_s(of_project):
        return of_project
    return of_creator


def of_party(
    session: Session,
    meter: UsageMeter,
    forecast: BalanceForecast,
    of_creator: BalanceForecast | None,
) -> BalanceForecast:
    """The forecast, with the party of a federated job that it is for.

    of_creator: that of who pays the fee of the meter's job.
    """
    if session.get_one(Job, meter.job_id).federated_id is None:
        return forecast
    party = "creator" if forecast is of_creator else "consumer"
    return forecast.model_copy(update={"federated_payer": party})


def _lasts_s(forecast: BalanceForecast) -> float:
    """How long the job can run by a forecast; for ever, where it costs its payer nothing."""
    burn = forecast.burn_microcredits_per_hour
    if not forecast.costs or not burn:
        return math.inf
    spendable = forecast.spendable_microcredits
    return min(forecast.left_microcredits, spendable) * 3600 / burn


def _forecast_of(
    session: Session, payer_id: str, job_id: str, posted: int, *, costs: bool
) -> BalanceForecast:
    """The balance forecast of a payer of a job."""
    forecast = _forecast(session, payer_id, posted, costs=costs)
    if forecast.left_microcredits <= 0 or forecast.runway_s > ESTIMATED_BELOW_S:
        return forecast  # The next wakeup does not depend on an estimate.
    is_scarce = forecast.costs and _runway_level(forecast)
    early_s = _ends_early_s(session, payer_id, job_id) if is_scarce else 0
    due = {"ends_early_s": early_s, "to_warning_s": to_warning_s(forecast.runway_s)}
    return forecast.model_copy(update=due)


def payer_forecast(session: Session, payer_id: str) -> BalanceForecast:
    """The balance forecast of a payer, whatever changes it."""
    forecast = _forecast(session, payer_id, 0, costs=True)
    return forecast.model_copy(update={"to_warning_s": to_warning_s(forecast.runway_s)})


def lock_balance(session: Session, *payer_ids: str) -> None:
    """Lock the payers' balances, in the order of the ledger, so that of two that begin to cost at
    once at least one sees both burn rates."""
    for each in sorted(set(payer_ids)):
        name = col(LedgerAccount.name) == credits_name(each)
        session.execute(select(LedgerAccount.name).where(name).with_for_update())


def recheck_other_jobs(
    session: Session, meters: Sequence[UsageMeter], forecast: BalanceForecast, added: int
) -> list[str]:
    """Request a recheck from the payer's other job billings, if the runway level has risen.

    Writes outbox rows in the caller's transaction and returns their ids. Jobs without a cost are
    not rechecked.

    meters: the usage meters of the job that has just posted.
    added: microcredits per hour that this job has newly added to the burn rate.
    """
    before = forecast.model_copy(
        update={
            "balance_microcredits": forecast.balance_microcredits + forecast.posted_microcredits,
            "burn_microcredits_per_hour": forecast.burn_microcredits_per_hour - added,
        }
    )
    if _runway_level(forecast) <= _runway_level(before):
        return []
    return _recheck(session, _costly_jobs(session, meters[0].payer_id, but=meters[0].job_id))


def recheck_of_creator(
    session: Session, meters: Sequence[UsageMeter], forecast: BalanceForecast | None
) -> list[str]:
    """Request a recheck from the other job billings of who pays the federated fee of a job that
    has just begun, while their next wakeup depends on the runway.

    Writes outbox rows in the caller's transaction and returns their ids.

    forecast: that of the creator; None: nobody pays a fee.
    """
    payer_id = meters[0].federated_payer_id
    if payer_id is None or forecast is None or not _runway_level(forecast):
        return []
    return _recheck(session, _costly_jobs(session, payer_id, but=meters[0].job_id))


def recompute_runway(
    session: Session, payer_id: str, *, moved: int = 0, added: int = 0
) -> list[str]:
    """Warn a payer of its runway, and request a recheck from its job billings if it has shortened.

    For changes that are of no job: they are rare, so that each job billing may look again whose
    next wakeup depends on the runway. Writes outbox rows in the caller's transaction, in which the
    balance is locked or nobody else changes it, and returns their ids.

    moved: microcredits that the caller has just moved to the balance; below zero: from it.
    added: microcredits per hour that the caller has just added to the burn rate.
    """
    forecast = payer_forecast(session, payer_id)
    warn_of_runway(session, payer_id, forecast)
    if (moved >= 0 and added <= 0) or not _runway_level(forecast):
        return []
    return _recheck(session, _costly_jobs(session, payer_id))


def _recheck(session: Session, job_ids: Sequence[str]) -> list[str]:
    now = datetime.now(UTC)
    # The request goes to the workflow of the job billing, not to that of the job.
    billing_ids = [f"{job_id}/billing" for job_id in job_ids]
    return [enqueue(session, each, "recheck_balance", None, now) for each in billing_ids]


def _runway_level(forecast: BalanceForecast) -> int:
    return runway_level(
        forecast.left_microcredits,
        forecast.burn_microcredits_per_hour,
        settings().billing_period_s,
    )


def _forecast(session: Session, payer_id: str, posted: int, *, costs: bool) -> BalanceForecast:
    now = datetime.now(UTC)
    devices = device_costs(session, now, (payer_id,)).get(payer_id, DeviceCosts())
    forecast = BalanceForecast(
        posted_microcredits=posted,
        balance_microcredits=balance_of(session, credits_name(payer_id)),
        device_fees_microcredits=devices.uncharged_microcredits,
        burn_microcredits_per_hour=_burn(session, payer_id) + devices.microcredits_per_hour,
        costs=costs,
    )
    if forecast.left_microcredits <= 0 or forecast.runway_s > ESTIMATED_BELOW_S:
        return forecast
    payers = (payer_id,)
    free = free_of_charge(session, payers, now).get(payer_id, 0)
    update = {
        "unposted_microcredits": _unposted(session, payer_id, now)
        + unposted_fees(session, payer_id, now),
        "reserved_microcredits": reserved_microcredits(session, payers, now).get(payer_id, 0),
        "burn_microcredits_per_hour": forecast.burn_microcredits_per_hour - free,
    }
    return forecast.model_copy(update=update)


def _burn(session: Session, payer_id: str) -> int:
    """What the payer's running jobs cost together, in microcredits per hour."""
    running = col(UsageMeter.payer_id) == payer_id, col(UsageMeter.running).is_(True)
    jobs = session.exec(select(func.sum(UsageMeter.microcredits_per_hour)).where(*running)).one()
    return int(jobs or 0) + fees_per_hour(session, (payer_id,)).get(payer_id, 0)


def _costs(payer_id: str) -> ColumnElement[bool]:
    """The condition that a run goes on and costs the payer something: its usage or its fee."""
    usage = and_(
        col(UsageMeter.payer_id) == payer_id,
        col(UsageMeter.running).is_(True),
        col(UsageMeter.microcredits_per_hour) > 0,
    )
    return or_(usage, is_paid_by(payer_id))


def _ends_early_s(session: Session, payer_id: str, job_id: str) -> int:
    """How long before the end of the payer's runway a job ends.

    The older of two jobs is the one whose first attempt has begun earlier.
    """
    costly = select(UsageMeter.job_id).where(_costs(payer_id))
    begun = (
        select(UsageMeter.job_id, func.min(UsageMeter.started_at).label("at"))
        .where(col(UsageMeter.job_id).in_(costly))
        .group_by(col(UsageMeter.job_id))
        .subquery()
    )
    own_at = select(begun.c.at).where(begun.c.job_id == job_id).scalar_subquery()
    is_older = or_(begun.c.at < own_at, and_(begun.c.at == own_at, begun.c.job_id < job_id))
    counts = select(func.count(), func.count(case((is_older, 1)))).select_from(begun)
    job_count, older_count = session.execute(counts).one()
    return ends_early_s(older_count, job_count, settings().billing_period_s)


def _costly_jobs(session: Session, payer_id: str, but: str = "") -> Sequence[str]:
    """The jobs of a payer that cost something now, but one."""
    query = select(UsageMeter.job_id).where(_costs(payer_id), col(UsageMeter.job_id) != but)
    return session.exec(query.distinct().order_by(col(UsageMeter.job_id))).all()


def _unposted(session: Session, payer_id: str, now: datetime) -> int:
    """An estimate of the usage since the last posting, at most one billing period for each meter.

    A job whose node is unreachable is not counted, because its usage is unknown; nor are guests,
    for which a part of the balance is reserved.
    """
    rows = session.execute(
        select(UsageMeter.microcredits_per_hour, UsageMeter.started_at, UsageMeter.posted_s)
        .join(Job, col(Job.id) == col(UsageMeter.job_id))
        .where(
            col(UsageMeter.payer_id) == payer_id,
            col(UsageMeter.running).is_(True),
            col(UsageMeter.microcredits_per_hour) > 0,
            col(Job.status) == JobStatus.RUNNING,
            ~is_of_guest(),
        )
    )
    period_s = settings().billing_period_s
    return sum(
        cumulative_microcredits(rate, _clamped(int((now - started).total_seconds()) - s, period_s))
        for rate, started, s in rows
    )


def _clamped(seconds: int, most: int) -> int:
    return max(0, min(seconds, most))
