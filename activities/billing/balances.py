"""What is left of balances: less the device fees of days that are not charged yet, and what is
reserved for guests.

Jobs end when it is used up, so nothing that costs begins then either.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import func, literal
from sqlmodel import Session, col, select

from activities.billing.device_days import DeviceCosts, device_costs
from activities.billing.guests import reserved_microcredits
from activities.billing.payers import balance_microcredits, payer_of
from activities.db.tables import Account, LedgerAccount

_AT_ONCE = 500


def left_microcredits(session: Session, account: Account) -> int:
    """What is left of the balance of an account's payer; below zero, the debt."""
    payer_id, now = payer_of(account), datetime.now(UTC)
    devices = device_costs(session, now, (payer_id,)).get(payer_id, DeviceCosts())
    reserved = reserved_microcredits(session, (payer_id,), now).get(payer_id, 0)
    return balance_microcredits(session, account) - devices.uncharged_microcredits - reserved


def able_to_pay(session: Session, account_ids: Iterable[str]) -> set[str]:
    """The accounts whose payer has more than zero left."""
    wanted, now = sorted(account_ids), datetime.now(UTC)
    able: set[str] = set()
    for start in range(0, len(wanted), _AT_ONCE):
        payer_id = func.coalesce(Account.billing_account_id, Account.id)
        name = literal("account/") + payer_id + literal("/credits")
        query = (
            select(Account.id, payer_id, LedgerAccount.balance_microcredits)
            .join(LedgerAccount, col(LedgerAccount.name) == name)
            .where(
                col(Account.id).in_(wanted[start : start + _AT_ONCE]),
                col(LedgerAccount.balance_microcredits) > 0,
            )
        )
        found = session.exec(query).all()
        payers = {each[1] for each in found}
        devices = device_costs(session, now, payers) if found else {}
        reserved = reserved_microcredits(session, payers, now) if found else {}
        able.update(
            account_id
            for account_id, payer, balance in found
            if balance - reserved.get(payer, 0)
            > devices.get(payer, DeviceCosts()).uncharged_microcredits
        )
    return able
