"""What each clock has measured of a job's runs, beside what is posted of them: for disputes.

An answer has ids and figures only: no name, log or project of the other party.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, SQLColumnExpression, and_, false, or_
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from activities.db import tables
from api.authorization import Caller
from api.problems import missing
from api.schemas import jobs as schemas
from api.services.ownership import visible_jobs
from workflows.contracts.billing import TransactionKind, UsageRates
from workflows.rules.ids import instant_of

MOST_SLICES = 1000
_CHARGES = (TransactionKind.USAGE_FEE.value, TransactionKind.MARKET_PRICE.value)
_transaction = tables.LedgerTransaction


@dataclass(frozen=True)
class Runs:
    """Which runs are asked for; None: those of every attempt, or of every worker."""

    attempt: int | None = None
    worker: int | None = None


class _Measured(NamedTuple):
    """A usage meter with its allocation, and the account of the node's region."""

    meter: tables.UsageMeter
    allocation: tables.Allocation | None
    owner_id: str | None

    @property
    def run(self) -> tuple[int, int]:
        return self.meter.worker, self.meter.attempt


def measurements_of(
    session: Session, caller: Caller, job_id: str, runs: Runs
) -> schemas.JobMeasurements:
    """The measured runs of a job that concern the caller; as many queries for any number of them.

    Raises: Problem `not-found`, also when nothing of the job concerns the caller.
    """
    is_visible = _is_visible(session, caller, job_id)
    measured = [
        each
        for each in _measured(session, job_id, runs)
        if is_visible or caller.account_id in _parties(each)
    ]
    if not is_visible and not measured:
        raise missing("job", job_id)
    slices, is_whole = _slices(session, (job_id, runs), _on_the_books_of(caller, is_visible))
    return schemas.JobMeasurements(
        job_id=job_id,
        runs=[_run(each, slices[each.run], datetime.now(UTC)) for each in measured],
        is_whole=is_whole,
    )


def _is_visible(session: Session, caller: Caller, job_id: str) -> bool:
    visible = visible_jobs(session, caller)
    return bool(session.exec(select(tables.Job.id).where(tables.Job.id == job_id, visible)).first())


def _parties(measured: _Measured) -> tuple[str | None, ...]:
    """The accounts beside the job's own that a run concerns."""
    meter = measured.meter
    return meter.payer_id, meter.federated_payer_id, measured.owner_id


def _measured(session: Session, job_id: str, runs: Runs) -> list[_Measured]:
    meter, held = tables.UsageMeter, tables.Allocation
    rows = session.exec(
        select(meter, held, tables.Region.account_id)
        .outerjoin(
            held,
            and_(
                col(held.job_id) == col(meter.job_id),
                col(held.attempt) == col(meter.attempt),
                col(held.worker) == col(meter.worker),
            ),
        )
        .outerjoin(tables.Node, col(tables.Node.id) == col(held.node_id))
        .outerjoin(tables.Region, col(tables.Region.id) == col(tables.Node.region_id))
        .where(
            col(meter.job_id) == job_id,
            *_asked(runs, col(meter.attempt), col(meter.worker)),
        )
        .order_by(col(meter.attempt), col(meter.worker))
    )
    return [_Measured(*row) for row in rows]


def _asked(
    runs: Runs, attempt: SQLColumnExpression[int], worker: SQLColumnExpression[int]
) -> Iterable[ColumnElement[bool]]:
    for column, value in ((attempt, runs.attempt), (worker, runs.worker)):
        if value is not None:
            yield column == value


def _on_the_books_of(caller: Caller, is_visible: bool) -> ColumnElement[bool]:
    """The condition that a transaction is the caller's, or a charge of a job it may read."""
    charges = col(_transaction.kind).in_(_CHARGES)
    return or_(
        charges if is_visible else false(),
        and_(
            col(_transaction.account_id) == caller.account_id,
            col(_transaction.kind) != TransactionKind.REVERSAL.value,
        ),
    )


def _slices(
    session: Session, asked: tuple[str, Runs], on_the_books: ColumnElement[bool]
) -> tuple[dict[tuple[int, int], list[schemas.MeasuredSlice]], bool]:
    """The slices of each run, oldest first, and whether they are all."""
    job_id, runs = asked
    reversal = aliased(_transaction)
    details = col(_transaction.details)
    rows = session.exec(
        select(_transaction, tables.LedgerPosting.amount_microcredits, reversal.id)
        .join(
            tables.LedgerPosting,
            col(tables.LedgerPosting.transaction_id) == col(_transaction.id),
        )
        .outerjoin(reversal, col(reversal.reverses_id) == col(_transaction.id))
        .where(
            col(_transaction.job_id) == job_id,
            on_the_books,
            col(tables.LedgerPosting.ledger_account).startswith("account/"),
            *_asked(runs, details["attempt"].as_integer(), details["worker"].as_integer()),
        )
        .order_by(col(_transaction.id))
        .limit(MOST_SLICES + 1)
    ).all()
    found: dict[tuple[int, int], list[schemas.MeasuredSlice]] = defaultdict(list)
    for row, amount, reversed_by in rows[:MOST_SLICES]:
        run = (row.details.get("worker", -1), row.details.get("attempt", -1))
        found[run].append(
            schemas.MeasuredSlice(
                transaction_id=row.id,
                kind=row.kind,
                from_s=row.details.get("from_s", 0),
                through_s=row.details.get("through_s", 0),
                amount_microcredits=amount,
                posted_at=instant_of(row.id),
                reversed_by=reversed_by,
            )
        )
    return found, len(rows) <= MOST_SLICES


def _run(
    measured: _Measured, slices: Sequence[schemas.MeasuredSlice], now: datetime
) -> schemas.RunMeasurement:
    meter, held = measured.meter, measured.allocation
    ends_at = (
        None if meter.measured_s is None else meter.started_at + timedelta(seconds=meter.measured_s)
    )
    node = _reading(meter.node_started_at, meter.node_ended_at)
    supervisor = schemas.ClockReading(
        begins_at=meter.started_at, ends_at=ends_at, seconds=meter.measured_s
    )
    allocation = (
        _reading(None, None) if held is None else _reading(held.created_at, held.released_at, now)
    )
    return schemas.RunMeasurement(
        worker=meter.worker,
        attempt=meter.attempt,
        node_id=None if held is None else held.node_id,
        is_market_price=UsageRates.model_validate(meter.rates).is_market_price,
        node=node,
        supervisor=supervisor,
        allocation=allocation,
        measured_at=meter.measured_at,
        posted_s=meter.posted_s,
        unposted_s=_less(meter.measured_s, meter.posted_s),
        node_difference_s=_less(node.seconds, meter.measured_s),
        allocation_difference_s=_less(allocation.seconds, meter.measured_s),
        slices=list(slices),
    )


def _reading(
    begins_at: datetime | None, ends_at: datetime | None, now: datetime | None = None
) -> schemas.ClockReading:
    """now: until when it lasts that has no end yet; None: its seconds are not known."""
    until = ends_at or now
    seconds = (
        None if begins_at is None or until is None else int((until - begins_at).total_seconds())
    )
    return schemas.ClockReading(begins_at=begins_at, ends_at=ends_at, seconds=seconds)


def _less(more: int | None, less: int | None) -> int | None:
    return None if more is None or less is None else more - less
