"""Checks of public capacity: market prices and earnings are computed anew from tables and rows."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import aliased
from sqlmodel import Session

from activities.billing.ledger import MARKET_PRICES
from activities.billing.ledger_audit.books import own_credits
from activities.billing.ledger_audit.checks import Check, Difference, streamed
from activities.billing.payers import earnings_name
from activities.db.tables import (
    Allocation,
    Job,
    LedgerPosting,
    LedgerTransaction,
    Node,
    Region,
    UsageMeter,
)
from workflows.contracts.billing import TransactionKind, UsageRates
from workflows.rules.billing.market_prices import earned_between, market_price
from workflows.rules.billing.usage_fees import gpu_hour_fee

_held: Any = Allocation
_job: Any = Job
_meter: Any = UsageMeter
_node: Any = Node
_posting: Any = LedgerPosting
_region: Any = Region
_transaction: Any = LedgerTransaction


def _market_prices(session: Session) -> Iterator[Difference]:
    """A guest pays the dated price of its GPU type, others' jobs do, and nobody else's."""
    query = (
        select(UsageMeter, _held.created_at, _node.gpu_type, _job.account_id, _region.account_id)
        .join(Job, _job.id == _meter.job_id)
        .join(
            Allocation,
            and_(
                _held.job_id == _meter.job_id,
                _held.attempt == _meter.attempt,
                _held.worker == _meter.worker,
            ),
        )
        .join(Node, _node.id == _held.node_id)
        .join(Region, _region.id == _node.region_id)
        .order_by(_meter.job_id, _meter.worker, _meter.attempt)
    )
    for meter, placed_at, gpu_type, account_id, owner_id in streamed(session, query):
        name = f"{meter.job_id} worker {meter.worker} attempt {meter.attempt}"
        rates = UsageRates.model_validate(meter.rates)
        for what, expected, found in _facts(rates, gpu_type, placed_at, account_id != owner_id):
            if expected != found:
                yield Difference("market-prices", name, what, str(expected), str(found))
    yield from _moves(session)


def _facts(
    rates: UsageRates, gpu_type: str | None, placed_at: datetime, is_guest: bool
) -> Iterator[tuple[str, object, object]]:
    yield "guests pay market prices, and no one else", is_guest, rates.is_market_price
    if not rates.is_market_price:
        return
    price = market_price(gpu_type or "", placed_at)
    fee = gpu_hour_fee(gpu_type or "", placed_at)
    yield f"the price of {gpu_type} at {placed_at}", price, rates.microcredits_per_gpu_hour
    yield f"the fee in it at {placed_at}", fee, rates.market_fee_microcredits_per_gpu_hour
    yield "no fee for CPUs beside it", 0, rates.microcredits_per_cpu_core_hour


def _moves(session: Session) -> Iterator[Difference]:
    """A market price moves from the credits of its payer to the platform, and nothing else."""
    is_right = (
        and_(_posting.ledger_account == MARKET_PRICES, _posting.amount_microcredits > 0)
    ) | and_(_posting.ledger_account == own_credits(), _posting.amount_microcredits < 0)
    query = (
        select(_transaction.id, _posting.ledger_account)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(_transaction.kind == TransactionKind.MARKET_PRICE.value, ~is_right)
    )
    for name, found in streamed(session, query):
        what = "a market price moves from its payer to the platform"
        yield Difference("market-prices", name, what, MARKET_PRICES, found)


def _earnings(session: Session) -> Iterator[Difference]:
    """Each market price has the earning of its seconds, for the owner of its region."""
    earning: Any = aliased(LedgerTransaction)
    to: Any = aliased(LedgerPosting)
    same_seconds = and_(
        earning.job_id == _transaction.job_id,
        earning.kind == TransactionKind.EARNING.value,
        *(
            earning.details[each].as_integer() == _transaction.details[each].as_integer()
            for each in ("worker", "attempt", "from_s", "through_s")
        ),
    )
    query = (
        select(
            _transaction.id, _transaction.details, _transaction.provider_id, _region.account_id,
            to.ledger_account, to.amount_microcredits,
        )
        .outerjoin(Region, _region.id == _transaction.region_id)
        .outerjoin(earning, same_seconds)
        .outerjoin(
            to, and_(to.transaction_id == earning.id, to.ledger_account != MARKET_PRICES)
        )
        .where(_transaction.kind == TransactionKind.MARKET_PRICE.value)
    )  # fmt: skip
    for name, details, provider_id, owner_id, account, amount in streamed(session, query):
        rates = UsageRates.model_validate(details.get("rates") or {})
        seconds = details.get("from_s", 0), details.get("through_s", 0)
        expected = earned_between(rates, *seconds)
        found = f"{amount or 0} on {account or 'no account'}"
        wanted = f"{expected} on {earnings_name(owner_id or '', provider_id or '')}"
        if found != wanted and (expected or amount):
            what = f"half of the price less the fee of seconds {seconds[0]} to {seconds[1]}"
            yield Difference("earnings", name, what, wanted, found)
    yield from _without_price(session)


def _without_price(session: Session) -> Iterator[Difference]:
    """Earnings that belong to no meter of a guest."""
    has_meter = (
        select(_meter.job_id)
        .where(
            _meter.job_id == _transaction.job_id,
            _meter.worker == _transaction.details["worker"].as_integer(),
            _meter.attempt == _transaction.details["attempt"].as_integer(),
            _meter.posted_s >= _transaction.details["through_s"].as_integer(),
        )
        .exists()
    )
    query = select(_transaction.id, _transaction.job_id).where(
        _transaction.kind == TransactionKind.EARNING.value, ~has_meter
    )
    for name, job_id in streamed(session, query):
        what = "an earning is of seconds that a meter has posted"
        yield Difference("earnings", name, what, "a meter", str(job_id))


PUBLIC_CAPACITY = (
    Check("market-prices", "each guest pays the dated price of its GPUs", _market_prices),
    Check("earnings", "each market price has the earning of its region's owner", _earnings),
)
