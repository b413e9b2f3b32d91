"""The ledger, the only code of the model that moves money. As activities/billing/ledger.py."""

from collections.abc import Callable
from datetime import datetime

from activities.billing.ledger import FUNDING, Entry, LedgerError, _check
from activities.billing.payers import credits_name
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.billing import TransactionKind


class Ledger:
    """Balanced transactions, each once under its business key."""

    def __init__(self, tables: Tables, now: Callable[[], datetime]) -> None:
        self._tables = tables
        self._now = now
        self.posted: dict[str, dict[str, int]] = {}
        """The legs of each transaction, by business key."""
        self.balances: dict[str, int] = {}
        self.out_since: dict[str, datetime] = {}
        """When a balance was last above zero that is not any more."""

    def post(self, entry: Entry) -> bool:
        """Post an entry in the caller's transaction; False: it was posted before.

        Raises: LedgerError, when the entry is not balanced, or another one has its business key.
        """
        _check(entry)
        legs = dict(entry.legs)
        before = self.posted.get(entry.business_key)
        if before is not None:
            if before != legs:
                raise LedgerError(f"{entry.business_key}: stands for {before}, asked {legs}")
            return False
        self._tables.put(self.posted, entry.business_key, legs)
        for name, amount in legs.items():
            balance = self.balance(name)
            self._tables.put(self.balances, name, balance + amount)
            if (balance > 0) != (balance + amount > 0):
                self._tables.placement_changes()
                if balance > 0:
                    self._tables.put(self.out_since, name, self._now())
                else:
                    self._tables.drop(self.out_since, name)
        return True

    def add_credits(self, account_id: str, microcredits: int, key: str, at: datetime) -> None:
        """As ledger.py:add_credits. Raises: LedgerError."""
        if microcredits <= 0:
            raise LedgerError(f"credits: asked {microcredits} microcredits, must be above 0")
        self.post(
            Entry(
                business_key=f"credits/{key}",
                kind=TransactionKind.CREDITS,
                account_id=account_id,
                legs={FUNDING: -microcredits, credits_name(account_id): microcredits},
                at=at,
                description="credits added",
            )
        )

    def balance(self, name: str) -> int:
        """The balance of a ledger account in microcredits; below zero, the debt."""
        return self.balances.get(name, 0)

    def imbalance(self) -> int:
        """The sum of all postings."""
        return sum(amount for legs in self.posted.values() for amount in legs.values())
