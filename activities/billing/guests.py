"""Guests in the balances of their payers: until when they are billed, and what is reserved.

The owner of a node earns with what its guests run, and decides whether anybody can ask the node. So
what a guest has run since its last posting counts as used up by the clock, wherever its node is,
and what it runs after its job was asked to end, because the credits are used up, is not billed.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, update
from sqlmodel import Session, col, func, select

from activities.db.tables import Allocation, Job, UsageMeter
from workflows.rules.billing.metering import cumulative_microcredits

ENDING_S = 60
"""How long a guest may take to end that was asked to, as the credits are used up, and is billed."""
_meter: Any = UsageMeter


def is_of_guest() -> ColumnElement[bool]:
    """The condition that a meter is of a guest, as its rates say."""
    fee: ColumnElement[int] = _meter.rates["market_fee_microcredits_per_gpu_hour"].as_integer()
    return fee.is_not(None)


def is_of_run() -> ColumnElement[bool]:
    """The condition that an allocation is that of a meter's run."""
    return and_(
        col(Allocation.job_id) == col(UsageMeter.job_id),
        col(Allocation.worker) == col(UsageMeter.worker),
        col(Allocation.attempt) == col(UsageMeter.attempt),
    )


def billed_until(used_up_at: datetime | None, preempted_at: datetime | None) -> datetime | None:
    """The instant from which on a guest is not billed; None: there is none yet.

    used_up_at: when its job was asked to end, because the credits of its payer were used up;
    preempted_at: when it was asked to leave.
    """
    ends = [] if preempted_at is None else [preempted_at]
    if used_up_at is not None:
        ends.append(used_up_at + timedelta(seconds=ENDING_S))
    return min(ends, default=None)


def reserved_microcredits(
    session: Session, payer_ids: Collection[str], now: datetime
) -> dict[str, int]:
    """What the guests that run cost by the clock since their last postings, by their payer.

    Of a command that has ended, the seconds that its node has measured count.
    """
    rows = session.execute(
        select(UsageMeter, Job.workers, Allocation.preempted_at, Allocation.released_at)
        .join(Job, col(Job.id) == col(UsageMeter.job_id))
        .outerjoin(Allocation, is_of_run())
        .where(
            col(UsageMeter.payer_id).in_(payer_ids),
            col(UsageMeter.running).is_(True),
            is_of_guest(),
        )
    )
    found: dict[str, int] = defaultdict(int)
    for meter, workers, preempted_at, released_at in rows:
        ends = billed_until(meter.credits_used_up_at, preempted_at), released_at, now
        until = min(each for each in ends if each is not None)
        through_s = _through_s(meter, workers, until)
        if through_s > meter.posted_s:
            rate = meter.microcredits_per_hour
            found[meter.payer_id] += cumulative_microcredits(rate, through_s)
            found[meter.payer_id] -= cumulative_microcredits(rate, meter.posted_s)
    return found


def _through_s(meter: UsageMeter, workers: Sequence[dict[str, Any]], until: datetime) -> int:
    lasted_s = int((until - meter.started_at).total_seconds())
    for worker in workers:
        if worker["index"] == meter.worker and worker.get("exit"):
            return min(lasted_s, int(worker.get("elapsed_s") or 0))
    return lasted_s


def free_of_charge(session: Session, payer_ids: Collection[str], now: datetime) -> dict[str, int]:
    """What of the burn rate of each payer is of guests that are not billed any more."""
    used_up_before = now - timedelta(seconds=ENDING_S)
    query = (
        select(UsageMeter.payer_id, func.sum(UsageMeter.microcredits_per_hour))
        .outerjoin(Allocation, is_of_run())
        .where(
            col(UsageMeter.payer_id).in_(payer_ids),
            col(UsageMeter.running).is_(True),
            or_(
                col(Allocation.preempted_at).is_not(None),
                col(UsageMeter.credits_used_up_at) <= used_up_before,
            ),
        )
        .group_by(col(UsageMeter.payer_id))
    )
    return {payer_id: int(rate) for payer_id, rate in session.exec(query)}


def end_for_credits(
    session: Session, job_id: str, now: datetime, *, asked_at: datetime | None = None
) -> None:
    """Record that a job was asked to end because the credits of its payer are used up, if it is a
    guest; the first time counts.

    asked_at: when the end was decided on, None: now. Runs that have begun later are not asked, as
    the job may have started again, with new credits, before a held-up attempt records this.
    """
    session.execute(
        update(UsageMeter)
        .where(
            col(UsageMeter.job_id) == job_id,
            col(UsageMeter.running).is_(True),
            col(UsageMeter.credits_used_up_at).is_(None),
            col(UsageMeter.started_at) <= (asked_at or now),
            is_of_guest(),
        )
        .values(credits_used_up_at=now)
        .execution_options(synchronize_session=False)
    )
