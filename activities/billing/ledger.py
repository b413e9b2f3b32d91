"""The ledger: the only code that moves money.

Every ledger transaction is balanced, is posted once for each business key, and is never edited.
The balance of a ledger account changes in the same database transaction as its postings.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel, col, select

from activities.billing.payers import credits_name
from activities.db.ids import new_id
from activities.db.tables import Account, LedgerAccount, LedgerPosting, LedgerTransaction
from workflows.contracts.billing import TransactionKind

USAGE_FEES = "platform/usage-fees"
MARKET_PRICES = "platform/market-prices"
FUNDING = "platform/funding"
DEVICE_FEES = "platform/device-fees"
FEDERATED_FEES = "platform/federated-fees"


class LedgerError(ValueError):
    """An entry that the ledger refuses: not balanced, or different under a business key in use."""


@dataclass(frozen=True)
class Entry:
    """A ledger transaction that is to be posted; its legs add up to zero."""

    business_key: str
    kind: TransactionKind
    account_id: str
    """The account whose statement shows the transaction."""
    legs: Mapping[str, int]
    """Ledger account to the microcredits that the ledger account gains; below zero: gives."""
    at: datetime
    description: str
    project_id: str | None = None
    provider_id: str | None = None
    region_id: str | None = None
    job_id: str | None = None
    device_id: str | None = None
    reverses_id: str | None = None
    """The transaction that this entry takes back."""
    details: dict[str, Any] = field(default_factory=dict)


def post(session: Session, entry: Entry) -> LedgerTransaction:
    """Post an entry in the caller's transaction, or return the transaction posted before.

    Raises: LedgerError, when the entry is not balanced, or when its business key names another
    entry.
    """
    _check(entry)
    transaction = LedgerTransaction(
        id=new_id("txn"),
        business_key=entry.business_key,
        kind=entry.kind,
        account_id=entry.account_id,
        project_id=entry.project_id,
        provider_id=entry.provider_id,
        region_id=entry.region_id,
        job_id=entry.job_id,
        device_id=entry.device_id,
        reverses_id=entry.reverses_id,
        description=entry.description,
        details=entry.details,
        at=entry.at,
    )
    if not _insert_new(session, LedgerTransaction, transaction.model_dump(), "business_key"):
        return _posted_before(session, entry)
    # All transactions lock ledger accounts in the same order, which prevents a deadlock.
    balances = {name: _move(session, name, entry.legs[name]) for name in sorted(entry.legs)}
    for number, (name, amount) in enumerate(entry.legs.items()):
        session.add(
            LedgerPosting(
                transaction_id=transaction.id,
                leg=number,
                ledger_account=name,
                amount_microcredits=amount,
                balance_after_microcredits=balances[name],
            )
        )
    return _posted(session, entry.business_key)


def add_credits(
    session: Session, account: Account, amount_microcredits: int, key: str, at: datetime
) -> LedgerTransaction:
    """Add credits to an account, once for each key; return the new or the earlier transaction.

    key: identifies a repeated call, such as an idempotency key or an id.
    Raises: LedgerError, when the amount is not above zero, or when the key names another entry.
    """
    if amount_microcredits <= 0:
        raise LedgerError(f"credits: asked {amount_microcredits} microcredits, must be above 0")
    entry = Entry(
        business_key=f"credits/{key}",
        kind=TransactionKind.CREDITS,
        account_id=account.id,
        legs={FUNDING: -amount_microcredits, credits_name(account.id): amount_microcredits},
        at=at,
        description="credits added",
    )
    return post(session, entry)


def lock_accounts(session: Session, names: Iterable[str]) -> None:
    """Lock ledger accounts until the commit, in the order in which each entry locks its own.

    Call this before several entries of one transaction that share ledger accounts.
    """
    for name in sorted(set(names)):
        _move(session, name, 0)


def balance_of(session: Session, ledger_account: str) -> int:
    """The balance of a ledger account in microcredits; below zero, the debt."""
    row = session.exec(
        select(LedgerAccount.balance_microcredits).where(col(LedgerAccount.name) == ledger_account)
    ).first()
    return row if row is not None else 0


def _check(entry: Entry) -> None:
    total = sum(entry.legs.values())
    if total != 0:
        raise LedgerError(f"{entry.business_key}: the legs add up to {total}, not to 0")
    if not entry.legs or 0 in entry.legs.values():
        raise LedgerError(f"{entry.business_key}: must have two legs or more, none of 0")


def _move(session: Session, name: str, amount_microcredits: int) -> int:
    """Add the amount to the ledger account; return its new balance."""
    owner = name.split("/")[1] if name.startswith("account/") else None
    values = {"name": name, "account_id": owner, "balance_microcredits": 0}
    _insert_new(session, LedgerAccount, values, "name")
    balance = col(LedgerAccount.balance_microcredits)
    moved = session.execute(
        update(LedgerAccount)
        .where(col(LedgerAccount.name) == name)
        .values(balance_microcredits=balance + amount_microcredits)
        .returning(balance)
        .execution_options(synchronize_session=False)
    )
    return int(moved.scalar_one())


def _insert_new(
    session: Session, table: type[SQLModel], values: dict[str, Any], unique: str
) -> bool:
    """Insert a row unless one with the same unique value exists; whether it was inserted."""
    dialect = session.get_bind().dialect.name
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    statement = (
        insert(table)
        .values(values)
        .on_conflict_do_nothing(index_elements=[unique])
        .returning(getattr(table, unique))
    )
    return session.execute(statement).first() is not None


def _posted(session: Session, business_key: str) -> LedgerTransaction:
    query = select(LedgerTransaction).where(col(LedgerTransaction.business_key) == business_key)
    return session.exec(query).one()


def _posted_before(session: Session, entry: Entry) -> LedgerTransaction:
    before = _posted(session, entry.business_key)
    query = select(LedgerPosting).where(col(LedgerPosting.transaction_id) == before.id)
    posted = {row.ledger_account: row.amount_microcredits for row in session.exec(query)}
    if posted != dict(entry.legs):
        found, asked = _legs_text(posted), _legs_text(dict(entry.legs))
        raise LedgerError(f"{entry.business_key}: stands for {found}; asked {asked}")
    return before


def _legs_text(legs: Mapping[str, int]) -> str:
    """Legs as people read them, in microcredits, those that gain first."""
    ordered = sorted(legs.items(), key=lambda leg: -leg[1])
    return ", ".join(f"{account} {amount:+d} microcredits" for account, amount in ordered)
