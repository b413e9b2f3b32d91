"""The balance forecast of a payer, and what follows when its runway changes."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import and_, case, func, or_
from sqlmodel import Session, col, select

from activities.billing.device_days import DeviceCosts, device_costs
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
    payer_id = meters[0].payer_id
    costs = any(meter.microcredits_per_hour for meter in meters)
    forecast = _forecast(session, payer_id, posted, costs=costs)
    if forecast.left_microcredits <= 0 or forecast.runway_s > ESTIMATED_BELOW_S:
        return forecast  # The next wakeup does not depend on an estimate.
    early_s = _ends_early_s(session, meters) if forecast.costs and _runway_level(forecast) else 0
    due = {"ends_early_s": early_s, "to_warning_s": to_warning_s(forecast.runway_s)}
    return forecast.model_copy(update=due)


def payer_forecast(session: Session, payer_id: str) -> BalanceForecast:
    """The balance forecast of a payer, whatever changes it."""
    forecast = _forecast(session, payer_id, 0, costs=True)
    return forecast.model_copy(update={"to_warning_s": to_warning_s(forecast.runway_s)})


def lock_balance(session: Session, payer_id: str) -> None:
    """Lock the payer's balance, so that of two that begin to cost at once at least one sees both
    burn rates."""
    name = col(LedgerAccount.name) == credits_name(payer_id)
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
    unposted = _unposted(session, payer_id, now)
    return forecast.model_copy(update={"unposted_microcredits": unposted})


def _burn(session: Session, payer_id: str) -> int:
    """What the payer's running jobs cost together, in microcredits per hour."""
    running = col(UsageMeter.payer_id) == payer_id, col(UsageMeter.running).is_(True)
    jobs = session.exec(select(func.sum(UsageMeter.microcredits_per_hour)).where(*running)).one()
    return int(jobs or 0)


def _ends_early_s(session: Session, meters: Sequence[UsageMeter]) -> int:
    """How long before the end of the runway the job of these meters ends.

    The older of two jobs is the one whose first attempt has begun earlier.
    """
    payer_id, job_id = meters[0].payer_id, meters[0].job_id
    costs = (
        col(UsageMeter.payer_id) == payer_id,
        col(UsageMeter.running).is_(True),
        col(UsageMeter.microcredits_per_hour) > 0,
    )
    begun = (
        select(UsageMeter.job_id, func.min(UsageMeter.started_at).label("at"))
        .where(col(UsageMeter.job_id).in_(select(UsageMeter.job_id).where(*costs)))
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
    query = select(UsageMeter.job_id).where(
        col(UsageMeter.payer_id) == payer_id,
        col(UsageMeter.running).is_(True),
        col(UsageMeter.microcredits_per_hour) > 0,
        col(UsageMeter.job_id) != but,
    )
    return session.exec(query.distinct().order_by(col(UsageMeter.job_id))).all()


def _unposted(session: Session, payer_id: str, now: datetime) -> int:
    """An estimate of the usage since the last posting, at most one billing period for each meter.

    A job whose node is unreachable is not counted, because its usage is unknown.
    """
    rows = session.execute(
        select(UsageMeter.microcredits_per_hour, UsageMeter.started_at, UsageMeter.posted_s)
        .join(Job, col(Job.id) == col(UsageMeter.job_id))
        .where(
            col(UsageMeter.payer_id) == payer_id,
            col(UsageMeter.running).is_(True),
            col(UsageMeter.microcredits_per_hour) > 0,
            col(Job.status) == JobStatus.RUNNING,
        )
    )
    period_s = settings().billing_period_s
    return sum(
        cumulative_microcredits(rate, _clamped(int((now - started).total_seconds()) - s, period_s))
        for rate, started, s in rows
    )


def _clamped(seconds: int, most: int) -> int:
    return max(0, min(seconds, most))
