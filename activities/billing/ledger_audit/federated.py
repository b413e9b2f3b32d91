"""Checks of federated fees: each is computed anew from the meter of its run and the fee tables."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlmodel import Session

from activities.billing.ledger import FEDERATED_FEES
from activities.billing.ledger_audit.checks import Check, Difference, batches, streamed
from activities.billing.ledger_audit.meters import Run, meters_of, name_of, run_of
from activities.db.tables import (
    FederatedJob,
    Job,
    LedgerPosting,
    LedgerTransaction,
    UsageMeter,
)
from workflows.contracts.billing import TransactionKind
from workflows.contracts.statuses import JobType
from workflows.rules.billing.metering import cumulative_microcredits
from workflows.rules.federation.fees import worker_hour_fee

JOBS_AT_ONCE = 100
_meter: Any = UsageMeter
_job: Any = Job
_federated: Any = FederatedJob
_posting: Any = LedgerPosting
_transaction: Any = LedgerTransaction


def _fees(session: Session) -> Iterator[Difference]:
    """A meter has posted the fee of its seconds, by the job's type and the owners of both sides."""
    query = (
        select(UsageMeter, Job, FederatedJob)
        .join(Job, _job.id == _meter.job_id)
        .outerjoin(FederatedJob, _federated.id == _job.federated_id)
        .order_by(_meter.job_id, _meter.worker, _meter.attempt)
    )
    for meter, job, row in streamed(session, query):
        is_one_owner = row is None or row.account_id == row.consumer_account_id
        rate = worker_hour_fee(JobType(job.type), is_one_owner, meter.started_at)
        facts = (
            ("the federated fee of an hour", rate, meter.federated_microcredits_per_hour),
            (
                f"the federated fee of {meter.posted_s} s",
                cumulative_microcredits(rate, meter.posted_s),
                meter.federated_microcredits,
            ),
        )
        for what, expected, found in facts:
            if expected != found:
                yield Difference("federated", name_of(meter), what, str(expected), str(found))


def _postings(session: Session) -> Iterator[Difference]:
    """Each posted fee is that of its seconds, all of a run are its meter, and its creator pays."""
    jobs = select(_meter.job_id).where(_meter.federated_payer_id.is_not(None)).distinct()
    for rows in batches(session, jobs, _meter.job_id, JOBS_AT_ONCE):
        yield from _of_jobs(session, [row[0] for row in rows])
    has_meter = (
        select(_meter.job_id)
        .where(_meter.job_id == _transaction.job_id, _meter.federated_payer_id.is_not(None))
        .exists()
    )
    fees = _transaction.kind == TransactionKind.FEDERATED_FEE.value
    for name, job_id in streamed(
        session, select(_transaction.id, _transaction.job_id).where(fees, ~has_meter)
    ):
        what = "a federated fee is of a run of a federated job"
        yield Difference("federated-fees", name, what, "a meter", str(job_id))


def _of_jobs(session: Session, job_ids: list[str]) -> Iterator[Difference]:
    meters = meters_of(session, job_ids)
    posted: dict[Run, int] = defaultdict(int)
    through: dict[Run, int] = defaultdict(int)
    """Up to which second the fees of a run follow each other."""
    since_s: Any = _transaction.details["from_s"].as_integer()
    query = (
        select(
            _transaction.id,
            _transaction.job_id,
            _transaction.account_id,
            _transaction.details,
            _transaction.at,
            _posting.amount_microcredits,
        )
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(
            _transaction.job_id.in_(job_ids),
            _transaction.kind == TransactionKind.FEDERATED_FEE.value,
            _posting.ledger_account == FEDERATED_FEES,
        )
        .order_by(_transaction.job_id, since_s, _transaction.id)
    )
    for row in streamed(session, query):
        run = run_of(row)
        posted[run] += row.amount_microcredits
        yield from _of_slice(row, meters.get(run), through[run])
        through[run] = row.details.get("through_s", 0)
    for run, meter in meters.items():
        if posted[run] != meter.federated_microcredits:
            what = "the meter has posted the sum of its federated fees"
            sums = str(posted[run]), str(meter.federated_microcredits)
            yield Difference("federated-fees", name_of(meter), what, *sums)


def _of_slice(row: Any, meter: UsageMeter | None, before_s: int) -> Iterator[Difference]:
    """before_s: the second up to which the slice before goes."""
    payer_id = None if meter is None else meter.federated_payer_id
    facts: list[tuple[str, object, object]] = [
        ("a federated fee is paid by the creator", payer_id, row.account_id)
    ]
    if meter is not None:
        since_s, through_s = row.details.get("from_s", 0), row.details.get("through_s", 0)
        rate = meter.federated_microcredits_per_hour
        expected = cumulative_microcredits(rate, through_s) - cumulative_microcredits(rate, since_s)
        what = f"the federated fee of seconds {since_s} to {through_s}"
        at = meter.started_at + timedelta(seconds=through_s)
        facts += [
            (what, expected, row.amount_microcredits),
            ("the rate is that of the meter", rate, row.details.get("microcredits_per_hour")),
            ("it begins where the fee before ends", before_s, since_s),
            ("its seconds are posted on the meter", min(through_s, meter.posted_s), through_s),
            ("it is at the end of its seconds", at, row.at),
        ]
    for what, wanted, found in facts:
        if wanted != found:
            yield Difference("federated-fees", row.id, what, str(wanted), str(found))


FEDERATED = (
    Check("federated", "each meter has posted the federated fee of its seconds", _fees),
    Check(
        "federated-fees",
        "each creator has paid the federated fee of the seconds of each slice",
        _postings,
    ),
)
