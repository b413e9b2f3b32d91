"""Checks of what providers have: payouts of their earnings, and preferred credits."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import and_, literal, not_, or_, select
from sqlmodel import Session

from activities.billing.ledger_audit.books import own_credits
from activities.billing.ledger_audit.checks import Check, Difference, batches, streamed
from activities.billing.preferred_credits import left_of
from activities.db.tables import Lease, LedgerPosting, LedgerTransaction, Provider
from workflows.contracts.billing import TransactionKind
from workflows.rules.billing.metering import cumulative_microcredits

_lease: Any = Lease
_provider: Any = Provider
_posting: Any = LedgerPosting
_transaction: Any = LedgerTransaction
_account_id = _transaction.details["account_id"].as_string()
_earnings = literal("account/") + _account_id + "/earnings/" + _transaction.provider_id
_payout = _transaction.kind == TransactionKind.PAYOUT.value
SPARE = 0.0005
"""The seconds by which SQLite, which counts in milliseconds, may end a whole second early."""


def _payouts(session: Session) -> Iterator[Difference]:
    """A payout moves what one provider has earned to its payer, and not more than was there."""
    is_right = or_(
        and_(
            _posting.ledger_account == _earnings,
            _posting.amount_microcredits < 0,
            _posting.balance_after_microcredits >= 0,
        ),
        and_(_posting.ledger_account == own_credits(), _posting.amount_microcredits > 0),
    )
    query = (
        select(_transaction.id, _posting.ledger_account, _posting.amount_microcredits,
               _posting.balance_after_microcredits)
        .join(LedgerPosting, _posting.transaction_id == _transaction.id)
        .where(_payout, or_(not_(is_right), _account_id.is_(None)))
    )  # fmt: skip
    for name, account, amount, after in streamed(session, query):
        what = "a payout moves earnings that are there to the credits of their payer"
        found = f"{amount} on {account}, then {after}"
        yield Difference("payouts", name, what, "earnings to credits", found)
    payouts = (
        select(_transaction.id, _transaction.business_key, _transaction.provider_id,
               _transaction.details, _provider.account_id)
        .outerjoin(Provider, _provider.id == _transaction.provider_id)
        .where(_payout)
    )  # fmt: skip
    for row in streamed(session, payouts):
        key = f"payout/{row.provider_id}/{row.details.get('day')}"
        for what, expected, found in (
            ("its business key is that of the provider and the day", key, row.business_key),
            ("the account is that of the provider", row.account_id, row.details.get("account_id")),
        ):
            if expected != found:
                yield Difference("payouts", row.id, what, str(expected), str(found))


def _preferred_credits(session: Session) -> Iterator[Difference]:
    """What is left of preferred credits is the amount less what the leases have cost since."""
    at = datetime.now(UTC)
    query = select(_provider.id, Provider).where(
        or_(
            _provider.preferred_credits_microcredits.is_not(None),
            _provider.preferred_from_microcredits != 0,
            _provider.fee_waived,
        )
    )
    for rows in batches(session, query, _provider.id):
        given = [row[1] for row in rows]
        left = left_of(session, given, at)
        spent = _spent(session, [each.id for each in given], at)
        for each in given:
            yield from _of_provider(each, left.get(each.id), spent[each.id])


def _of_provider(
    provider: Provider, left: int | None, spent: tuple[int, int]
) -> Iterator[Difference]:
    """spent: the least and the most that its leases have cost ever."""
    amount, since = provider.preferred_credits_microcredits, provider.preferred_from_microcredits
    if not 0 <= since <= spent[1]:
        what = "the amount counts from a cost that its machines have reached"
        yield Difference("preferred-credits", provider.id, what, f"0 to {spent[1]}", str(since))
    if provider.fee_waived and amount is None:
        what = "a usage fee is waived while there are preferred credits"
        yield Difference("preferred-credits", provider.id, what, "an amount", "none")
    if left is None:
        return
    most, least = (max(0, (amount or 0) - max(0, cost - since)) for cost in spent)
    if not least <= left <= most:
        what = "what is left is the amount less what its machines have cost since"
        expected = f"{least} to {most}"
        yield Difference("preferred-credits", provider.id, what, expected, str(left))


def _spent(
    session: Session, provider_ids: list[str], at: datetime
) -> defaultdict[str, tuple[int, int]]:
    """The least and the most that all leases of each provider have cost until an instant.

    They differ where the database may count a second that is not quite over.
    """
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    query = select(Lease).where(_lease.provider_id.in_(provider_ids))
    for (lease,) in streamed(session, query):
        (least, most), costs = found[lease.provider_id], _costs(lease, at)
        found[lease.provider_id] = least + costs[0], most + costs[1]
    return found


def _costs(lease: Lease, at: datetime) -> tuple[int, int]:
    earlier = lease.earlier_microcredits
    if lease.began_at is None:
        return earlier, earlier
    offered = (lease.offer or {}).get("microcredits_per_hour")
    price = lease.microcredits_per_hour or offered or 0
    lasted_s = max(0.0, ((lease.ended_at or at) - lease.began_at).total_seconds())
    return (
        earlier + cumulative_microcredits(price, int(lasted_s)),
        earlier + cumulative_microcredits(price, int(lasted_s + SPARE)),
    )


PROVIDERS = (
    Check("payouts", "each payout moves earnings of its provider to its payer", _payouts),
    Check(
        "preferred-credits",
        "preferred credits are counted down by what leases cost",
        _preferred_credits,
    ),
)
