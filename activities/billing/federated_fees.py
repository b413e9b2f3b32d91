"""The fees of federated jobs: what their creators pay for each hour of a worker.

The fee of a run is posted with its usage, for the same seconds, from another payer. What the
project's owner is charged does not change by it.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_
from sqlmodel import Session, col, func, select

from activities.billing.ledger import FEDERATED_FEES, Entry, post
from activities.billing.payers import credits_name, payer_of
from activities.db.tables import Account, FederatedJob, Job, UsageMeter
from activities.settings import settings
from workflows.contracts.billing import TransactionKind
from workflows.contracts.statuses import JobStatus, JobType
from workflows.rules.billing.metering import cumulative_microcredits, slices
from workflows.rules.federation.fees import worker_hour_fee


def fix_fee(session: Session, job: Job, meter: UsageMeter) -> None:
    """Fix who pays the federated fee of a new meter, and how much; other jobs have none."""
    if job.federated_id is None:
        return
    row = session.get_one(FederatedJob, job.federated_id)
    creator = session.get_one(Account, row.account_id)
    is_one_owner = row.account_id == row.consumer_account_id
    meter.federated_payer_id = payer_of(creator)
    meter.federated_microcredits_per_hour = worker_hour_fee(
        JobType(job.type), is_one_owner, meter.started_at
    )


def accounts_of_fee(meter: UsageMeter) -> tuple[str, ...]:
    """The ledger accounts that the federated fee of a run moves; none: there is no fee."""
    if not meter.federated_microcredits_per_hour or meter.federated_payer_id is None:
        return ()
    return credits_name(meter.federated_payer_id), FEDERATED_FEES


def post_fee(session: Session, meter: UsageMeter, through_s: int, project_id: str) -> None:
    """Post the federated fee of a run from what is posted of it to `through_s`.

    The caller's transaction moves the meter forwards by the same seconds.
    """
    rate, payer_id = meter.federated_microcredits_per_hour, meter.federated_payer_id
    if not rate or payer_id is None:
        return
    period_s = settings().billing_period_s
    for piece in slices(rate, posted_s=meter.posted_s, through_s=through_s, period_s=period_s):
        amount, seconds = piece.amount_microcredits, piece.end_s - piece.start_s
        begins = meter.started_at + timedelta(seconds=piece.start_s)
        if not amount:
            continue
        post(
            session,
            Entry(
                business_key=f"job/{meter.job_id}/federated/{meter.worker}/{begins.isoformat()}",
                kind=TransactionKind.FEDERATED_FEE,
                account_id=payer_id,
                project_id=project_id,
                job_id=meter.job_id,
                legs={credits_name(payer_id): -amount, FEDERATED_FEES: amount},
                at=meter.started_at + timedelta(seconds=piece.end_s),
                description=(
                    f"federated job, worker {meter.worker}: {seconds} s from "
                    f"{begins:%Y-%m-%d %H:%M:%S} UTC"
                ),
                details={
                    "worker": meter.worker,
                    "attempt": meter.attempt,
                    "from_s": piece.start_s,
                    "through_s": piece.end_s,
                    "microcredits_per_hour": rate,
                },
            ),
        )
        meter.federated_microcredits += amount


def is_paid_by(payer_id: str) -> ColumnElement[bool]:
    """The condition that a payer pays the federated fee of a run that goes on."""
    return and_(
        col(UsageMeter.federated_payer_id) == payer_id,
        col(UsageMeter.running).is_(True),
        col(UsageMeter.federated_microcredits_per_hour) > 0,
    )


def fees_per_hour(session: Session, payer_ids: Collection[str]) -> dict[str, int]:
    """The federated fees of the runs that go on, in microcredits per hour, by their payer."""
    query = (
        select(UsageMeter.federated_payer_id, func.sum(UsageMeter.federated_microcredits_per_hour))
        .where(col(UsageMeter.federated_payer_id).in_(payer_ids), col(UsageMeter.running).is_(True))
        .group_by(col(UsageMeter.federated_payer_id))
    )
    return {payer_id: int(fees) for payer_id, fees in session.exec(query) if payer_id is not None}


def payers_of_fees(session: Session) -> set[str]:
    """Those who pay the federated fee of a run that goes on."""
    query = select(UsageMeter.federated_payer_id).where(
        col(UsageMeter.running).is_(True), col(UsageMeter.federated_payer_id).is_not(None)
    )
    return {payer_id for payer_id in session.exec(query.distinct()) if payer_id is not None}


def unposted_fees(session: Session, payer_id: str, now: datetime) -> int:
    """An estimate of the fees since the last posting, at most one billing period for each meter."""
    rows = session.execute(
        select(UsageMeter)
        .join(Job, col(Job.id) == col(UsageMeter.job_id))
        .where(is_paid_by(payer_id), col(Job.status) == JobStatus.RUNNING)
    ).scalars()
    most = settings().billing_period_s
    return sum(
        cumulative_microcredits(
            each.federated_microcredits_per_hour,
            max(0, min(int((now - each.started_at).total_seconds()) - each.posted_s, most)),
        )
        for each in rows
    )
