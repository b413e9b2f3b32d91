"""The balance forecast of a payer, and the recheck of its other jobs when the runway shortens."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import and_, case, func, or_
from sqlmodel import Session, col, select

from activities.billing.ledger import balance_of
from activities.billing.payers import credits_name
from activities.db.tables import Account, Device, Job, LedgerAccount, UsageMeter
from activities.outbox.requests import enqueue
from activities.settings import settings
from workflows.contracts.billing import HOURS_PER_MONTH, BalanceForecast
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.device_fees import DEVICE_MONTH
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
    forecast = BalanceForecast(
        posted_microcredits=posted,
        balance_microcredits=balance_of(session, credits_name(payer_id)),
        burn_microcredits_per_hour=_burn(session, payer_id),
        costs=any(meter.microcredits_per_hour for meter in meters),
    )
    if forecast.balance_microcredits <= 0 or forecast.runway_s > ESTIMATED_BELOW_S:
        return forecast  # The next wakeup does not depend on an estimate.
    unposted = _unposted(session, payer_id, datetime.now(UTC))
    forecast = forecast.model_copy(update={"unposted_microcredits": unposted})
    early_s = _ends_early_s(session, meters) if forecast.costs and _runway_level(forecast) else 0
    due = {"ends_early_s": early_s, "to_warning_s": to_warning_s(forecast.runway_s)}
    return forecast.model_copy(update=due)


def lock_balance(session: Session, payer_id: str) -> None:
    """Lock the payer's balance, so that of two jobs that start at once at least one sees both
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


def recheck_jobs(session: Session, payer_id: str, charged: int) -> list[str]:
    """Request a recheck from the payer's job billings, if a charge that is of no job has raised
    the runway level.

    Writes outbox rows in the caller's transaction and returns their ids.

    charged: microcredits that the caller has just posted.
    """
    forecast = BalanceForecast(
        posted_microcredits=charged,
        balance_microcredits=balance_of(session, credits_name(payer_id)),
        burn_microcredits_per_hour=_burn(session, payer_id),
    )
    balance = forecast.balance_microcredits + charged
    before = forecast.model_copy(update={"balance_microcredits": balance})
    if _runway_level(forecast) <= _runway_level(before):
        return []
    return _recheck(session, _costly_jobs(session, payer_id))


def _recheck(session: Session, job_ids: Sequence[str]) -> list[str]:
    now = datetime.now(UTC)
    # The request goes to the workflow of the job billing, not to that of the job.
    billing_ids = [f"{job_id}/billing" for job_id in job_ids]
    return [enqueue(session, each, "recheck_balance", None, now) for each in billing_ids]


def _runway_level(forecast: BalanceForecast) -> int:
    return runway_level(
        forecast.balance_microcredits,
        forecast.burn_microcredits_per_hour,
        settings().billing_period_s,
    )


def _burn(session: Session, payer_id: str) -> int:
    running = col(UsageMeter.payer_id) == payer_id, col(UsageMeter.running).is_(True)
    jobs = session.exec(select(func.sum(UsageMeter.microcredits_per_hour)).where(*running)).one()
    paid_for = or_(col(Account.id) == payer_id, col(Account.billing_account_id) == payer_id)
    devices = session.exec(
        select(func.count())
        .select_from(Device)
        .join(Account, col(Account.id) == col(Device.account_id))
        .where(paid_for, col(Device.status) != "archived")
    ).one()
    return int(jobs or 0) + devices * DEVICE_MONTH // HOURS_PER_MONTH


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
