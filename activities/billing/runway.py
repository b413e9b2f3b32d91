"""Where a payer stands after a posting, and who is told when its credits last less long."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import func
from sqlmodel import Session, col, select

from activities.billing.ledger import balance_of
from activities.billing.payers import credits_name
from activities.db.tables import Job, LedgerAccount, UsageMeter
from activities.outbox.requests import enqueue
from activities.settings import settings
from workflows.contracts.billing import BalanceForecast
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.metering import cumulative_microcredits
from workflows.rules.billing.wakeups import runway_level


def balance_forecast(
    session: Session, meters: Sequence[UsageMeter], posted: int
) -> BalanceForecast:
    """Where the payer of a job's meters stands: what is left, and what all its running jobs cost.

    posted: microcredits that the caller has posted on them.
    """
    payer_id = meters[0].payer_id
    burn = session.exec(
        select(func.sum(UsageMeter.microcredits_per_hour)).where(
            col(UsageMeter.payer_id) == payer_id, col(UsageMeter.running).is_(True)
        )
    ).one()
    forecast = BalanceForecast(
        posted_microcredits=posted,
        balance_microcredits=balance_of(session, credits_name(payer_id)),
        burn_microcredits_per_hour=int(burn or 0),
        costs=any(meter.microcredits_per_hour for meter in meters),
    )
    if forecast.balance_microcredits <= 0 or not _runway_level(forecast):
        return forecast  # nothing has to be estimated to know when to look
    unposted = _unposted(session, payer_id, datetime.now(UTC))
    return forecast.model_copy(update={"unposted_microcredits": unposted})


def lock_balance(session: Session, payer_id: str) -> None:
    """What two beginning jobs add to what their payer spends is seen by one of them at least."""
    name = col(LedgerAccount.name) == credits_name(payer_id)
    session.execute(select(LedgerAccount.name).where(name).with_for_update())


def recheck_other_jobs(
    session: Session, meters: Sequence[UsageMeter], forecast: BalanceForecast, added: int
) -> list[str]:
    """Ask the bills of the payer's other jobs that cost to look again, where its credits last
    much less long than before, or not at all; the ids of the requests, in the caller's transaction.

    meters: of the job that has just posted; added: what it has newly begun to cost by the hour.
    """
    before = forecast.model_copy(
        update={
            "balance_microcredits": forecast.balance_microcredits + forecast.posted_microcredits,
            "burn_microcredits_per_hour": forecast.burn_microcredits_per_hour - added,
        }
    )
    if _runway_level(forecast) <= _runway_level(before):
        return []
    now = datetime.now(UTC)
    # Not of the job: of the workflow that bills it.
    billed = [f"{job_id}/billing" for job_id in _others(session, meters[0])]
    return [enqueue(session, bill, "recheck_balance", None, now) for bill in billed]


def _runway_level(forecast: BalanceForecast) -> int:
    return runway_level(
        forecast.balance_microcredits,
        forecast.burn_microcredits_per_hour,
        settings().billing_period_s,
    )


def _others(session: Session, own: UsageMeter) -> Sequence[str]:
    query = select(UsageMeter.job_id).where(
        col(UsageMeter.payer_id) == own.payer_id,
        col(UsageMeter.running).is_(True),
        col(UsageMeter.microcredits_per_hour) > 0,
        col(UsageMeter.job_id) != own.job_id,
    )
    return session.exec(query.distinct().order_by(col(UsageMeter.job_id))).all()


def _unposted(session: Session, payer_id: str, now: datetime) -> int:
    """What running jobs must have used since they were last posted, each a period at most.

    Of one whose node cannot be reached nobody can say, so that it is not counted.
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
        cumulative_microcredits(rate, _between(int((now - began).total_seconds()) - s, period_s))
        for rate, began, s in rows
    )


def _between(seconds: int, most: int) -> int:
    return max(0, min(seconds, most))
