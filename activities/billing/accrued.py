"""The accrued cost of jobs: what they have cost and nobody has posted yet, and their hourly cost.

Only for people to read: what nodes have measured is posted, and nothing of this.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_
from sqlmodel import Session, col, func, select

from activities.db.tables import Allocation, Job, UsageMeter
from activities.settings import settings
from workflows.contracts.billing import UsageRates
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.metering import cumulative_microcredits

_PLACED = (JobStatus.PROVISIONING, JobStatus.WAITING_FOR_DATA)
_RUNS = (JobStatus.RUNNING, JobStatus.UNREACHABLE)


@dataclass(frozen=True)
class Accrued:
    """The accrued cost of one job, and what an hour of it costs now.

    microcredits_per_hour: None: the job has no machine.
    """

    unposted_microcredits: int = 0
    microcredits_per_hour: int | None = None


def accrued_of(session: Session, jobs: Sequence[Job], now: datetime) -> dict[str, Accrued]:
    """The accrued cost of each of these jobs, by its id, with one query for all of them."""
    query = (
        select(UsageMeter, Allocation.released_at)
        .outerjoin(
            Allocation,
            and_(
                col(Allocation.job_id) == col(UsageMeter.job_id),
                col(Allocation.attempt) == col(UsageMeter.attempt),
                col(Allocation.worker) == col(UsageMeter.worker),
            ),
        )
        .where(
            col(UsageMeter.job_id).in_([job.id for job in jobs]),
            col(UsageMeter.running).is_(True),
        )
    )
    found: dict[str, list[tuple[UsageMeter, datetime | None]]] = defaultdict(list)
    for meter, released_at in session.exec(query):
        found[meter.job_id].append((meter, released_at))
    return {job.id: _accrued(job, found[job.id], now) for job in jobs}


def microcredits_per_hour_of(session: Session, account_id: str) -> int:
    """What an hour of all jobs of an account costs that run now, whoever pays."""
    rates = (
        select(func.sum(UsageMeter.microcredits_per_hour))
        .join(Job, col(Job.id) == col(UsageMeter.job_id))
        .where(Job.account_id == account_id, col(UsageMeter.running).is_(True))
    )
    return int(session.exec(rates).one() or 0)


def _accrued(
    job: Job, meters: Sequence[tuple[UsageMeter, datetime | None]], now: datetime
) -> Accrued:
    ended = {worker["index"]: worker for worker in job.workers if worker.get("exit")}
    # What an unreachable node has measured since is not known; nor is it of one that has ended.
    until = now if job.status == JobStatus.RUNNING else job.updated_at
    unposted = sum(
        _unposted(meter, min(until, released_at or until), ended.get(meter.worker))
        for meter, released_at in meters
    )
    return Accrued(unposted, _per_hour(job, [meter for meter, _ in meters], set(ended)))


def _unposted(meter: UsageMeter, until: datetime, ended: dict[str, Any] | None) -> int:
    """The cost of one run after what is posted, of at most one billing period.

    ended: the worker, if its command has ended, with the seconds that its node has measured.
    """
    lasted_s = int((until - meter.started_at).total_seconds())
    through_s = int(ended.get("elapsed_s") or 0) if ended else lasted_s
    through_s = min(through_s, meter.posted_s + settings().billing_period_s)
    if through_s <= meter.posted_s:
        return 0
    rate = meter.microcredits_per_hour
    before = cumulative_microcredits(rate, meter.posted_s)
    return cumulative_microcredits(rate, through_s) - before


def _per_hour(job: Job, meters: Sequence[UsageMeter], ended: set[int]) -> int | None:
    if job.status in _RUNS and meters:
        return sum(each.microcredits_per_hour for each in meters if each.worker not in ended)
    if job.status in (*_PLACED, *_RUNS) and job.rates:
        rates = [UsageRates.model_validate(each) for each in job.rates.values()]
        return sum(each.microcredits_per_hour for each in rates)
    return None
