"""Checks of usage: each charge is computed anew from meters, allocations, rates and leases."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, func, or_, select
from sqlmodel import Session

from activities.billing.guests import billed_until
from activities.billing.ledger import MARKET_PRICES, USAGE_FEES
from activities.billing.ledger_audit.books import own_credits
from activities.billing.ledger_audit.checks import Check, Difference, batches, streamed
from activities.billing.ledger_audit.meters import Run, meters_of, name_of, run_of
from activities.billing.payers import credits_name
from activities.billing.usage import SPARE_S
from activities.db.tables import (
    Allocation,
    Job,
    Lease,
    LedgerPosting,
    LedgerTransaction,
    UsageMeter,
)
from workflows.contracts.billing import TransactionKind, UsageRates
from workflows.rules.billing.metering import cumulative_microcredits

JOBS_AT_ONCE = 100
KINDS = (TransactionKind.USAGE_FEE.value, TransactionKind.MARKET_PRICE.value)
_HAS_METER = "a charge for usage is of a run with a usage meter"
_meter: Any = UsageMeter
_job: Any = Job
_held: Any = Allocation
_lease: Any = Lease
_posting: Any = LedgerPosting
_transaction: Any = LedgerTransaction


def _meters(session: Session) -> Iterator[Difference]:
    """A meter has posted the cost of its seconds, at the rates of its allocation, in its time."""
    query = (
        select(UsageMeter, Allocation)
        .outerjoin(
            Allocation,
            and_(
                _held.job_id == _meter.job_id,
                _held.attempt == _meter.attempt,
                _held.worker == _meter.worker,
            ),
        )
        .order_by(_meter.job_id, _meter.worker, _meter.attempt)
    )
    for meter, held in streamed(session, query):
        yield from _of_meter(meter, held)


def _of_meter(meter: UsageMeter, held: Allocation | None) -> Iterator[Difference]:
    name = name_of(meter)
    rates = UsageRates.model_validate(meter.rates)
    facts: list[tuple[str, object, object]] = [
        ("the rate is that of its rates", rates.microcredits_per_hour, meter.microcredits_per_hour),
        (
            f"the cost of {meter.posted_s} s",
            cumulative_microcredits(rates.microcredits_per_hour, meter.posted_s),
            meter.posted_microcredits,
        ),
    ]
    if held is not None and held.rates is not None:
        given = UsageRates.model_validate(held.rates)
        facts.append(("the rates are those of the allocation", given, rates))
    if held is not None and held.released_at is not None:
        lasted_s = max(0, int((held.released_at - held.created_at).total_seconds())) + SPARE_S
        most_s = min(lasted_s, meter.posted_s)
        facts.append(("no longer than the allocation has lasted", most_s, meter.posted_s))
    until = billed_until(meter.credits_used_up_at, None if held is None else held.preempted_at)
    if until is not None:
        lasted_s = max(0, int((until - meter.started_at).total_seconds())) + SPARE_S
        most_s = min(lasted_s, meter.posted_s)
        facts.append(("no longer than until it is not billed any more", most_s, meter.posted_s))
    for what, expected, found in facts:
        if expected != found:
            yield Difference("meters", name, what, str(expected), str(found))


def _slices(session: Session) -> Iterator[Difference]:
    """Each charge for usage is the exact cost of its seconds; those of a run are its meter."""
    query = select(_meter.job_id).distinct()
    for rows in batches(session, query, _meter.job_id, JOBS_AT_ONCE):
        yield from _of_jobs(session, [row[0] for row in rows])
    has_meter = select(_meter.job_id).where(_meter.job_id == _transaction.job_id).exists()
    fees = _transaction.kind.in_(KINDS)
    for name, job_id in streamed(
        session, select(_transaction.id, _transaction.job_id).where(fees, ~has_meter)
    ):
        yield Difference("slices", name, _HAS_METER, "a meter", str(job_id))


def _of_jobs(session: Session, job_ids: Sequence[str]) -> Iterator[Difference]:
    meters = meters_of(session, job_ids)
    posted: dict[Run, int] = defaultdict(int)
    query = (
        select(
            _transaction.id,
            _transaction.job_id,
            _transaction.kind,
            _transaction.account_id,
            _transaction.details,
            _transaction.at,
            _posting.amount_microcredits,
        )
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(
            _transaction.job_id.in_(job_ids),
            _transaction.kind.in_(KINDS),
            _posting.ledger_account.in_((USAGE_FEES, MARKET_PRICES)),
        )
    )
    for row in streamed(session, query):
        run = run_of(row)
        posted[run] += row.amount_microcredits
        yield from _of_slice(row, meters.get(run))
    for run, meter in meters.items():
        if posted[run] != meter.posted_microcredits:
            name = name_of(meter)
            what = "the meter has posted the sum of its slices"
            sums = str(posted[run]), str(meter.posted_microcredits)
            yield Difference("slices", name, what, *sums)


def _of_slice(row: Any, meter: UsageMeter | None) -> Iterator[Difference]:
    if meter is None:
        yield Difference("slices", row.id, _HAS_METER, "a meter", str(row.details))
        return
    since_s, through_s = row.details.get("from_s", 0), row.details.get("through_s", 0)
    rates = UsageRates.model_validate(meter.rates)
    rate = rates.microcredits_per_hour
    kind = TransactionKind.MARKET_PRICE if rates.is_market_price else TransactionKind.USAGE_FEE
    expected = cumulative_microcredits(rate, through_s) - cumulative_microcredits(rate, since_s)
    facts = (
        (f"the cost of seconds {since_s} to {through_s}", expected, row.amount_microcredits),
        ("the kind is that of the rates", kind.value, row.kind),
        ("the rates are those of the meter", meter.rates, row.details.get("rates")),
        ("the payer is that of the meter", meter.payer_id, row.account_id),
        (
            "it is at the end of its seconds",
            meter.started_at + timedelta(seconds=through_s),
            row.at,
        ),
    )
    for what, wanted, found in facts:
        if wanted != found:
            yield Difference("slices", row.id, what, str(wanted), str(found))


def _instant(meter: UsageMeter, seconds: int) -> datetime:
    return meter.started_at + timedelta(seconds=seconds)


def _payers(session: Session) -> Iterator[Difference]:
    """A usage fee moves from the credits of its payer to the platform, and nothing else."""
    is_right = or_(
        and_(_posting.ledger_account == USAGE_FEES, _posting.amount_microcredits > 0),
        and_(_posting.ledger_account == own_credits(), _posting.amount_microcredits < 0),
    )
    query = (
        select(_transaction.id, _transaction.account_id, _posting.ledger_account)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(_transaction.kind == TransactionKind.USAGE_FEE.value, ~is_right)
    )
    for name, account_id, found in streamed(session, query):
        what = "a usage fee moves from its payer to the platform"
        yield Difference("payers", name, what, credits_name(account_id), found)


def _gpu_seconds(session: Session) -> Iterator[Difference]:
    gpus = func.coalesce(_meter.rates["gpu_count"].as_integer(), 0)
    measured = func.coalesce(func.sum(_meter.posted_s * gpus), 0)
    query = (
        select(_job.id, measured, _job.gpu_seconds)
        .outerjoin(UsageMeter, _meter.job_id == _job.id)
        .group_by(_job.id, _job.gpu_seconds)
        .having(measured != _job.gpu_seconds)
    )
    for name, expected, found in streamed(session, query):
        what = "the GPU seconds of a job are those of its meters"
        yield Difference("gpu-seconds", name, what, str(expected), str(found))


def _leases(session: Session) -> Iterator[Difference]:
    """What a lease costs can be computed: it has a price and ends after it began."""
    offered = _lease.offer["microcredits_per_hour"].as_integer()
    query = select(_lease.id, _lease.began_at, _lease.ended_at).where(
        _lease.began_at.is_not(None),
        or_(
            _lease.ended_at < _lease.began_at,
            and_(_lease.microcredits_per_hour.is_(None), offered.is_(None)),
        ),
    )
    for name, began_at, ended_at in streamed(session, query):
        what = "a lease that has begun has a price, and ends later"
        yield Difference("leases", name, what, "a price", f"{began_at} to {ended_at}")


USAGE = (
    Check("meters", "each meter has posted the cost of its seconds at its rates", _meters),
    Check(
        "slices", "each charge for usage is the cost of its seconds, and all are its meter", _slices
    ),
    Check("payers", "each usage fee moves from its payer to the platform", _payers),
    Check("gpu-seconds", "each job has the GPU seconds of its meters", _gpu_seconds),
    Check("leases", "each lease has a price and an order of its instants", _leases),
)
