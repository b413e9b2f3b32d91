"""Posting the usage of runs, slice by slice, on usage meters that only move forwards."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, update
from sqlmodel import Session, col, select
from temporalio.exceptions import ApplicationError

from activities.billing.federated_fees import accounts_of_fee, fix_fee, post_fee
from activities.billing.guests import billed_until
from activities.billing.ledger import MARKET_PRICES, USAGE_FEES, Entry, lock_accounts, post
from activities.billing.payers import credits_name, earnings_name, payer_of
from activities.db.ids import new_id
from activities.db.session import advisory_lock
from activities.db.tables import (
    Account,
    Allocation,
    EventRow,
    Job,
    Node,
    Project,
    Region,
    UsageMeter,
)
from activities.settings import settings
from workflows.contracts.billing import TransactionKind, UsageRates, WorkerUsage
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.events import JobEvent
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.market_prices import earned_between
from workflows.rules.billing.metering import Slice, slices

USAGE_REFUSED = JobEvent.USAGE_REFUSED
MOST_PERIODS = 500
"""The billing periods that one transaction posts of a run, about a second; then others write."""
SPARE_S = 60
"""How much longer than its allocation a run may have taken, by the clocks of two machines."""


@dataclass(frozen=True)
class Posted:
    """What a transaction has posted of a run: new microcredits, and whether that was all."""

    microcredits: int = 0
    is_all: bool = True


def post_worker_usage(session: Session, usage: WorkerUsage) -> Posted:
    """Post the usage of one run that is not posted yet, of at most `MOST_PERIODS`.

    The first call fixes the run's start, its usage rates and its payer.
    Raises: NotFound, when there is no such job.
    """
    meter, _ = open_meter(session, usage)
    return post_on_meter(session, meter, usage.through_s)


def post_on_meter(session: Session, meter: UsageMeter, through_s: int) -> Posted:
    """Post the usage of a run up to `through_s` that is not posted yet, of at most `MOST_PERIODS`.

    A run is not charged for longer than its allocation has lasted, whatever its node has measured.
    """
    if through_s <= meter.posted_s:
        return Posted()
    believed_s = _believed_s(session, meter, through_s)
    period_s = settings().billing_period_s
    end_s = min(believed_s, (meter.posted_s // period_s + MOST_PERIODS) * period_s)
    if end_s <= meter.posted_s:
        return Posted()
    rates = UsageRates.model_validate(meter.rates)
    cut = slices(
        rates.microcredits_per_hour,
        posted_s=meter.posted_s,
        through_s=end_s,
        period_s=period_s,
    )
    subjects = _subjects_of(session, meter)
    if of_fee := accounts_of_fee(meter):
        lock_accounts(session, (credits_name(meter.payer_id), USAGE_FEES, *of_fee))
    posted = sum(_post_slice(session, meter, piece, subjects) for piece in cut)
    post_fee(session, meter, end_s, subjects.project_id)
    seconds = end_s - meter.posted_s
    meter.posted_s = end_s
    meter.posted_microcredits += posted
    session.add(meter)
    session.execute(
        update(Job)
        .where(col(Job.id) == meter.job_id)
        .values(
            charged_microcredits=col(Job.charged_microcredits) + posted,
            gpu_seconds=col(Job.gpu_seconds) + seconds * rates.gpu_count,
        )
    )
    return Posted(posted, is_all=end_s == believed_s)


def _believed_s(session: Session, meter: UsageMeter, through_s: int) -> int:
    """The seconds that can be true: those that the allocation has lasted, and `SPARE_S`.

    The others become an event of the job and no charge. A run may go on after its allocation, on a
    machine that its job does not believe any more. What a guest runs after it was asked to
    leave is free, and so is what it runs `ENDING_S` after it was asked to end without credits.
    """
    job = session.get_one(Job, meter.job_id)
    held = _allocation_of(session, meter.job_id, meter.worker, meter.attempt)
    placed_at = job.created_at if held is None else held.created_at
    ended_at = (None if held is None else held.released_at) or datetime.now(UTC)
    most_s = max(0, int((ended_at - placed_at).total_seconds())) + SPARE_S
    if through_s > most_s:
        _record_refused(session, job, meter, (through_s, most_s))
    preempted_at = None if held is None else held.preempted_at
    until = billed_until(meter.credits_used_up_at, preempted_at)
    if until is not None:
        billed_s = int((until - meter.started_at).total_seconds())
        most_s = min(most_s, max(0, billed_s))
    return min(through_s, most_s)


def _allocation_of(session: Session, job_id: str, worker: int, attempt: int) -> Allocation | None:
    """The allocation of the run; None: it never had one."""
    of_run = select(Allocation).where(
        col(Allocation.job_id) == job_id,
        col(Allocation.worker) == worker,
        col(Allocation.attempt) == attempt,
    )
    return session.exec(of_run).first()


def _record_refused(
    session: Session, job: Job, meter: UsageMeter, seconds: tuple[int, int]
) -> None:
    """Record in an event that not all seconds are charged, once in each step of the job.

    seconds: those that the node has measured, and those that are believed.
    """
    measured_s, believed_s = seconds
    advisory_lock(session, f"events/{job.account_id}")
    step = EventRow.resource_id == job.id, EventRow.sequence == job.sequence
    if session.exec(select(EventRow.id).where(*step, EventRow.type == USAGE_REFUSED)).first():
        return
    last = session.exec(select(func.max(EventRow.index)).where(*step)).one()
    session.add(
        EventRow(
            id=new_id("evt"),
            account_id=job.account_id,
            resource_id=job.id,
            sequence=job.sequence,
            index=0 if last is None else last + 1,
            type=USAGE_REFUSED,
            message=(
                f"worker {meter.worker}: its node has measured {measured_s} s, which is longer "
                f"than the worker has its allocation: only {believed_s} s are charged"
            ),
            details={"worker": meter.worker, "measured_s": measured_s, "charged_s": believed_s},
            at=datetime.now(UTC),
        )
    )


def is_over(session: Session, usage: WorkerUsage) -> bool:
    """Whether the row of the job says that the attempt of the run has ended."""
    job = session.get(Job, usage.job_id)
    return job is not None and not _runs(job, usage.attempt)


def payer_of_job(session: Session, job_id: str) -> str:
    """The payer of a job: the owner of its project, or that owner's billing account.

    Raises: NotFound, when there is no such job.
    """
    owner = session.exec(
        select(Account)
        .join(Project, col(Project.account_id) == Account.id)
        .join(Job, col(Job.project_id) == Project.id)
        .where(col(Job.id) == job_id)
    ).first()
    if owner is None:
        raise _no_job(job_id)
    return payer_of(owner)


def open_meter(session: Session, usage: WorkerUsage) -> tuple[UsageMeter, bool]:
    """The usage meter of a run, and whether this call has created it.

    Raises: NotFound, when there is no such job.
    """
    key = (usage.job_id, usage.worker, usage.attempt)
    job = session.exec(
        select(Job).where(col(Job.id) == usage.job_id).with_for_update()
    ).first()  # The lock on the job's row covers all its meters, also those that do not exist yet.
    if job is None:
        raise _no_job(usage.job_id)
    meter = session.get(UsageMeter, key)
    if meter is not None:
        _record_measurement(meter, usage)
        return meter, False
    held = _allocation_of(session, *key)
    # Those of the job are of its newest attempt, and this run may be of an earlier one.
    given = (held and held.rates) or (job.rates or {}).get(str(usage.worker)) or {}
    rates = UsageRates.model_validate(given)
    meter = UsageMeter(
        job_id=usage.job_id,
        worker=usage.worker,
        attempt=usage.attempt,
        payer_id=payer_of_job(session, usage.job_id),
        rates=rates.model_dump(mode="json"),
        microcredits_per_hour=rates.microcredits_per_hour,
        running=_runs(job, usage.attempt),
        started_at=usage.started_at,
    )
    fix_fee(session, job, meter)
    _record_measurement(meter, usage)
    session.add(meter)
    return meter, True


def _record_measurement(meter: UsageMeter, usage: WorkerUsage) -> None:
    """Keep what was measured, whether or not it is charged; what a node says first stays."""
    if usage.through_s > (meter.measured_s or 0):
        meter.measured_s, meter.measured_at = usage.through_s, datetime.now(UTC)
    meter.node_started_at = meter.node_started_at or usage.node_started_at
    meter.node_ended_at = meter.node_ended_at or usage.node_ended_at


def _runs(job: Job, attempt: int) -> bool:
    resting = (JobStatus.STOPPED, JobStatus.REMOVING)
    status = JobStatus(job.status)
    return attempt == job.attempt and not status.is_final and status not in resting


@dataclass(frozen=True)
class _Subjects:
    """What the transactions of a run are about."""

    project_id: str
    provider_id: str | None = None
    region_id: str | None = None
    owner_id: str | None = None
    """The account of the region."""


def _subjects_of(session: Session, meter: UsageMeter) -> _Subjects:
    """The project of a run's job, and where its allocation is; one query for all slices."""
    job = session.get_one(Job, meter.job_id)
    where = (
        select(Region.provider_id, Region.id, Region.account_id)
        .join(Node, col(Node.region_id) == col(Region.id))
        .join(Allocation, col(Allocation.node_id) == col(Node.id))
        .where(
            col(Allocation.job_id) == meter.job_id,
            col(Allocation.worker) == meter.worker,
            col(Allocation.attempt) == meter.attempt,
        )
    )
    return _Subjects(job.project_id, *(session.exec(where).first() or ()))


def _post_slice(session: Session, meter: UsageMeter, piece: Slice, about: _Subjects) -> int:
    """Post a slice and return its microcredits; a slice that costs nothing needs no transaction.

    Of a market price, the region's owner gets its share in a second transaction.
    """
    amount = piece.amount_microcredits
    is_market = UsageRates.model_validate(meter.rates).is_market_price
    if is_market:
        _post_earning(session, meter, piece, about)
    if amount == 0:
        return 0
    begins = _instant(meter, piece.start_s)
    seconds = piece.end_s - piece.start_s
    post(
        session,
        Entry(
            business_key=f"job/{meter.job_id}/usage/{meter.worker}/{begins.isoformat()}",
            kind=TransactionKind.MARKET_PRICE if is_market else TransactionKind.USAGE_FEE,
            account_id=meter.payer_id,
            project_id=about.project_id,
            provider_id=about.provider_id,
            region_id=about.region_id,
            job_id=meter.job_id,
            legs={
                credits_name(meter.payer_id): -amount,
                MARKET_PRICES if is_market else USAGE_FEES: amount,
            },
            at=_instant(meter, piece.end_s),
            description=f"worker {meter.worker}: {seconds} s from {begins:%Y-%m-%d %H:%M:%S} UTC",
            details=_details(meter, piece),
        ),
    )
    return amount


def _post_earning(session: Session, meter: UsageMeter, piece: Slice, about: _Subjects) -> None:
    """Post what the owner of the region earns with a slice; the next payout moves it to credits."""
    rates = UsageRates.model_validate(meter.rates)
    earned = earned_between(rates, piece.start_s, piece.end_s)
    if earned == 0 or about.owner_id is None or about.provider_id is None:
        return
    to = earnings_name(about.owner_id, about.provider_id)
    lock_accounts(session, (credits_name(meter.payer_id), MARKET_PRICES, to))
    begins = _instant(meter, piece.start_s)
    seconds = piece.end_s - piece.start_s
    post(
        session,
        Entry(
            business_key=f"job/{meter.job_id}/earning/{meter.worker}/{begins.isoformat()}",
            kind=TransactionKind.EARNING,
            account_id=about.owner_id,
            provider_id=about.provider_id,
            region_id=about.region_id,
            job_id=meter.job_id,
            legs={MARKET_PRICES: -earned, to: earned},
            at=_instant(meter, piece.end_s),
            description=f"guest: {seconds} s from {begins:%Y-%m-%d %H:%M:%S} UTC",
            details=_details(meter, piece),
        ),
    )


def _details(meter: UsageMeter, piece: Slice) -> dict[str, Any]:
    return {
        "worker": meter.worker,
        "attempt": meter.attempt,
        "from_s": piece.start_s,
        "through_s": piece.end_s,
        "rates": meter.rates,
    }


def _instant(meter: UsageMeter, seconds: int) -> datetime:
    return meter.started_at + timedelta(seconds=seconds)


def _no_job(job_id: str) -> ApplicationError:
    return ApplicationError(
        f"usage: asked to post for {job_id}, found no such job", type=NOT_FOUND, non_retryable=True
    )
