"""What the ledger shows of nodes: GPU seconds of their jobs, fees and earnings, added up there."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, and_, exists, func
from sqlalchemy.orm import aliased
from sqlmodel import Session, col, select

from activities.billing.ledger import USAGE_FEES
from activities.db.tables import Allocation, LedgerPosting, LedgerTransaction
from workflows.contracts.billing import TransactionKind


@dataclass(frozen=True)
class LedgerUse:
    """What the ledger shows of one node in a period."""

    gpu_seconds: int = 0
    fee_microcredits: int = 0
    earned_microcredits: int = 0


def use_of_nodes(
    session: Session, account_id: str, node_ids: Collection[str], period: tuple[datetime, datetime]
) -> dict[str, LedgerUse]:
    """The use of the account's own nodes by the account's own jobs, and what others paid for them.

    period: since and until before which instant transactions count. Those that were reversed are
    left out.
    """
    own = _used(node_ids, period)
    earnings = _earned(account_id, node_ids, period)
    earned = {node_id: int(amount) for node_id, amount in session.execute(earnings)}
    used = {
        node_id: (int(seconds or 0), int(fees or 0))
        for node_id, seconds, fees in session.execute(own)
    }
    return {
        node_id: LedgerUse(*used.get(node_id, (0, 0)), earned.get(node_id, 0))
        for node_id in {*used, *earned}
    }


def _used(node_ids: Collection[str], period: tuple[datetime, datetime]) -> Select[Any]:
    details = col(LedgerTransaction.details)
    seconds = details["through_s"].as_integer() - details["from_s"].as_integer()
    gpus = details["rates"]["gpu_count"].as_integer()
    sums = func.sum(seconds * gpus), func.sum(col(LedgerPosting.amount_microcredits))
    return _of_nodes(sums, TransactionKind.USAGE_FEE, node_ids, period).where(
        col(LedgerPosting.ledger_account) == USAGE_FEES
    )


def _earned(
    account_id: str, node_ids: Collection[str], period: tuple[datetime, datetime]
) -> Select[Any]:
    amount = col(LedgerPosting.amount_microcredits)
    return _of_nodes((func.sum(amount),), TransactionKind.EARNING, node_ids, period).where(
        col(LedgerPosting.ledger_account).startswith(f"account/{account_id}/", autoescape=True),
        amount > 0,
    )


def _of_nodes(
    sums: tuple[Any, ...],
    kind: TransactionKind,
    node_ids: Collection[str],
    period: tuple[datetime, datetime],
) -> Select[Any]:
    """These sums by node, of the transactions of one kind for runs on these nodes."""
    details = col(LedgerTransaction.details)
    run = and_(
        col(Allocation.job_id) == col(LedgerTransaction.job_id),
        col(Allocation.worker) == details["worker"].as_integer(),
        col(Allocation.attempt) == details["attempt"].as_integer(),
    )
    posting = col(LedgerPosting.transaction_id) == col(LedgerTransaction.id)
    reversal = aliased(LedgerTransaction)
    found: Select[Any] = (
        select(Allocation.node_id, *sums)
        .select_from(LedgerTransaction)
        .join(Allocation, run)
        .join(LedgerPosting, posting)
        .where(
            col(Allocation.node_id).in_(node_ids),
            col(LedgerTransaction.kind) == kind,
            col(LedgerTransaction.at) > period[0],
            col(LedgerTransaction.at) <= period[1],
            ~exists().where(col(reversal.reverses_id) == col(LedgerTransaction.id)),
        )
        .group_by(col(Allocation.node_id))
    )
    return found
