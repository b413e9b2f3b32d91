"""Reversals: an earlier ledger transaction is taken back by a new one with the opposite legs."""

from datetime import datetime

from sqlmodel import Session, col, select

from activities.billing.ledger import Entry, LedgerError, post
from activities.billing.payers import credits_name
from activities.db.tables import Job, LedgerPosting, LedgerTransaction
from workflows.contracts.billing import TransactionKind


def reverse(
    session: Session, row: LedgerTransaction, reason: str, at: datetime
) -> LedgerTransaction:
    """Post the reversal of a transaction, or return the one posted before, whatever its reason.

    What a job is charged follows; its usage meters keep what was measured. With a market price goes
    the earning that the region's owner has of it.
    Raises: LedgerError, when the transaction is a reversal itself.
    """
    if row.kind == TransactionKind.REVERSAL:
        raise LedgerError(f"{row.id}: is the reversal of {row.reverses_id}, and stays")
    # The job first, as posting its usage does; then those who reverse the same follow each other.
    of_job = select(Job).where(col(Job.id) == row.job_id).with_for_update()
    job = session.exec(of_job).first() if row.job_id else None
    same = select(LedgerTransaction.id).where(col(LedgerTransaction.id) == row.id)
    session.exec(same.with_for_update()).one()
    key = f"reversal/{row.id}"
    query = select(LedgerTransaction).where(col(LedgerTransaction.business_key) == key)
    if (before := session.exec(query).first()) is not None:
        return before
    of_it = select(LedgerPosting).where(col(LedgerPosting.transaction_id) == row.id)
    legs = session.exec(of_it.order_by(col(LedgerPosting.leg))).all()
    if job is not None:
        paid = [leg for leg in legs if leg.ledger_account == credits_name(row.account_id)]
        job.charged_microcredits += sum(leg.amount_microcredits for leg in paid)
        session.add(job)
    made = post(session, _entry(row, key, {leg.ledger_account: leg for leg in legs}, (reason, at)))
    if row.kind == TransactionKind.MARKET_PRICE:
        earning = row.business_key.replace("/usage/", "/earning/")
        by_key = select(LedgerTransaction).where(col(LedgerTransaction.business_key) == earning)
        if (earned := session.exec(by_key).first()) is not None:
            reverse(session, earned, reason, at)
    return made


def _entry(
    row: LedgerTransaction, key: str, legs: dict[str, LedgerPosting], why: tuple[str, datetime]
) -> Entry:
    reason, at = why
    return Entry(
        business_key=key,
        kind=TransactionKind.REVERSAL,
        account_id=row.account_id,
        project_id=row.project_id,
        provider_id=row.provider_id,
        region_id=row.region_id,
        job_id=row.job_id,
        device_id=row.device_id,
        reverses_id=row.id,
        legs={name: -leg.amount_microcredits for name, leg in legs.items()},
        at=at,
        description=f"reversal of {row.id}: {reason}",
        details={"reason": reason, "kind": row.kind},
    )
