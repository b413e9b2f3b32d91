"""The audit of the ledger: all checks, one after another, on one snapshot of the database.

What is posted for more than usage adds its checks to `CHECKS`.
"""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlmodel import Session

from activities.billing.ledger_audit.books import BOOKS
from activities.billing.ledger_audit.checks import Check, Difference
from activities.billing.ledger_audit.devices import DEVICES
from activities.billing.ledger_audit.federated import FEDERATED
from activities.billing.ledger_audit.providers import PROVIDERS
from activities.billing.ledger_audit.public_capacity import PUBLIC_CAPACITY
from activities.billing.ledger_audit.usage import USAGE
from activities.db.tables import LedgerAccount, LedgerPosting, LedgerTransaction, UsageMeter

CHECKS: tuple[Check, ...] = (*BOOKS, *USAGE, *DEVICES, *PROVIDERS, *PUBLIC_CAPACITY, *FEDERATED)
MOST_DIFFERENCES = 1000


@dataclass(frozen=True)
class CheckResult:
    """What one check has found: its name, what it is about, and the number of differences."""

    name: str
    what: str
    difference_count: int


@dataclass(frozen=True)
class LedgerAudit:
    """What all checks have found, of the differences at most `MOST_DIFFERENCES`."""

    transaction_count: int
    posting_count: int
    ledger_account_count: int
    meter_count: int
    checks: tuple[CheckResult, ...]
    differences: tuple[Difference, ...]

    @property
    def is_clean(self) -> bool:
        return not self.differences


def audit(session: Session, checks: tuple[Check, ...] = CHECKS) -> LedgerAudit:
    """Run all checks; they read in batches and change nothing."""
    kept: list[Difference] = []
    results = []
    for check in checks:
        count = 0
        for difference in check.run(session):
            count += 1
            if len(kept) < MOST_DIFFERENCES:
                kept.append(difference)
        results.append(CheckResult(check.name, check.what, count))
    return LedgerAudit(
        transaction_count=_count(session, LedgerTransaction.id),
        posting_count=_count(session, LedgerPosting.transaction_id),
        ledger_account_count=_count(session, LedgerAccount.name),
        meter_count=_count(session, UsageMeter.job_id),
        checks=tuple(results),
        differences=tuple(kept),
    )


def _count(session: Session, column: object) -> int:
    return int(session.execute(select(func.count(column))).scalar_one())  # type: ignore[arg-type]
