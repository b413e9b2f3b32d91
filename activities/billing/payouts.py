"""Payouts: moving the earnings of providers to credits, once for each provider and UTC day."""

from datetime import UTC, date, datetime

from sqlalchemy import exists, func, literal
from sqlmodel import Session, col, select
from temporalio import activity

from activities.billing.ledger import Entry, post
from activities.billing.payers import credits_name, earnings_name
from activities.billing.runway import recompute_runway
from activities.db.session import database
from activities.db.tables import Account, LedgerAccount, LedgerTransaction, Provider
from activities.placement.wake import wake_placement
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.billing import TransactionKind
from workflows.effects.billing import PaidOut, PayOut

IN_CREDITS = "credits"
"""The payment mode whose earnings are moved to credits, without a fee."""
AT_ONCE = 100
"""The payouts of one database transaction; then others write."""


def business_key(provider_id: str, day: date) -> str:
    return f"payout/{provider_id}/{day.isoformat()}"


@activity.defn
def pay_out(command: PayOut) -> PaidOut:
    """Move all earnings of each provider to the credits of its account's payer.

    A provider that has been paid for the period already waits for the next one, also when it has
    earned something since. A provider without earnings has no transaction.
    """
    amounts: list[int] = []
    with beating_aside():
        while True:
            # With a name, because a second attempt may begin before the first one has ended.
            with database().write(serialised="payouts") as session:
                due = _due(session, command.day)
                some = [_pay(session, each, command.day) for each in due]
                for payer_id in sorted({each[3] for each in due}):
                    recompute_runway(session, payer_id)  # Warns; a longer one needs no recheck.
            amounts += some
            if len(some) < AT_ONCE:
                break
    if amounts:
        wake_placement()  # Jobs may have waited for these credits.
    return PaidOut(payouts=len(amounts), microcredits=sum(amounts))


Due = tuple[str, str, str, str, int]
"""A payout: provider with its name, its account, the payer, and the microcredits."""


def _due(session: Session, day: date) -> list[Due]:
    """Some payouts of a period that are not posted yet, archived providers included."""
    account_id, provider_id = col(Provider.account_id), col(Provider.id)
    name = literal("account/") + account_id + literal("/earnings/") + provider_id
    key = literal("payout/") + provider_id + literal(f"/{day.isoformat()}")
    query = (
        select(  # type: ignore[call-overload]
            Provider.id,
            Provider.name,
            Account.id,
            func.coalesce(Account.billing_account_id, Account.id),
            LedgerAccount.balance_microcredits,
        )
        .join(Account, col(Account.id) == account_id)
        .join(LedgerAccount, col(LedgerAccount.name) == name)
        .where(
            Provider.payment_mode == IN_CREDITS,
            col(LedgerAccount.balance_microcredits) > 0,
            ~exists().where(col(LedgerTransaction.business_key) == key),
        )
        .order_by(account_id, provider_id)
        .limit(AT_ONCE)
    )
    return [tuple(row) for row in session.execute(query)]


def _pay(session: Session, due: Due, day: date) -> int:
    provider_id, name, account_id, payer_id, amount = due
    entry = Entry(
        business_key=business_key(provider_id, day),
        kind=TransactionKind.PAYOUT,
        account_id=payer_id,
        provider_id=provider_id,
        legs={earnings_name(account_id, provider_id): -amount, credits_name(payer_id): amount},
        at=datetime.now(UTC),
        description=f"earnings of {name} until {day}",
        details={"account_id": account_id, "day": day.isoformat()},
    )
    post(session, entry)
    return amount
