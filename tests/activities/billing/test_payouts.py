"""Payouts on real rows: each provider by itself, each period once, and nothing out of nothing."""

from datetime import date, timedelta

import pytest
from sqlmodel import select
from temporalio.testing import ActivityEnvironment

from activities.billing import payouts
from activities.billing.ledger import Entry, LedgerError, balance_of, post
from activities.billing.payers import credits_name, earnings_name
from activities.billing.payouts import pay_out
from activities.db import tables
from activities.db.session import Database
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.billing import TransactionKind
from workflows.effects.billing import PaidOut, PayOut

DAY = date(2026, 3, 1)
NEXT = DAY + timedelta(days=1)


class Owner:
    """An account whose providers earn."""

    def __init__(self, database: Database, name: str = "acme") -> None:
        self.database = database
        self.earned = 0
        with database.write() as session:
            account = add_payer(session, name)
            self.account_id = account.id
            self.provider_id = add_region(session, account).provider_id

    def second_provider(self, **values: str) -> str:
        with self.database.write() as session:
            first = session.get_one(tables.Provider, self.provider_id)
            same = first.model_dump(exclude={"id", "name"})
            row = tables.Provider(id="prv-second", name="second", **(same | values))
            session.add(row)
            return row.id

    def earns(self, amount: int, provider_id: str | None = None) -> None:
        self.earned += 1
        provider_id = provider_id or self.provider_id
        legs = {earnings_name(self.account_id, provider_id): amount, "platform/market": -amount}
        key = f"earned/{self.account_id}/{self.earned}"
        with self.database.write() as session:
            post(session, Entry(key, TransactionKind.EARNING, self.account_id, legs, NOW, "earned"))

    def credits(self) -> int:
        with self.database.read() as session:
            return balance_of(session, credits_name(self.account_id))

    def waiting(self, provider_id: str | None = None) -> int:
        name = earnings_name(self.account_id, provider_id or self.provider_id)
        with self.database.read() as session:
            return balance_of(session, name)


@pytest.fixture
def owner(migrated: Database) -> Owner:
    return Owner(migrated)


def pay(day: date = DAY) -> PaidOut:
    paid: PaidOut = ActivityEnvironment().run(pay_out, PayOut(day=day))
    return paid


def payouts_of(database: Database) -> list[tables.LedgerTransaction]:
    with database.read() as session:
        kind = tables.LedgerTransaction.kind == TransactionKind.PAYOUT
        order = tables.LedgerTransaction.business_key
        return list(session.exec(select(tables.LedgerTransaction).where(kind).order_by(order)))


def test_earnings_become_credits(migrated: Database, owner: Owner) -> None:
    owner.earns(1_265_000)
    assert pay() == PaidOut(payouts=1, microcredits=1_265_000)
    assert (owner.credits(), owner.waiting()) == (1_265_000, 0)
    [row] = payouts_of(migrated)
    assert row.business_key == f"payout/{owner.provider_id}/2026-03-01"
    assert (row.account_id, row.provider_id) == (owner.account_id, owner.provider_id)
    assert row.description == "earnings of machines until 2026-03-01"


def test_two_providers_of_an_account_are_paid_out_separately(
    migrated: Database, owner: Owner
) -> None:
    second = owner.second_provider()
    owner.earns(3)
    owner.earns(4, second)
    assert pay() == PaidOut(payouts=2, microcredits=7)
    assert owner.credits() == 7
    assert {row.provider_id for row in payouts_of(migrated)} == {owner.provider_id, second}


def test_where_nothing_was_earned_nothing_is_posted(migrated: Database, owner: Owner) -> None:
    assert pay() == PaidOut()
    owner.earns(5)
    owner.earns(-7)
    assert pay() == PaidOut()
    assert payouts_of(migrated) == []
    assert owner.waiting() == -2


def test_a_period_is_paid_once_and_what_is_earned_since_waits_for_the_next(owner: Owner) -> None:
    owner.earns(10)
    pay()
    owner.earns(5)
    assert pay() == PaidOut()
    assert (owner.credits(), owner.waiting()) == (10, 5)
    assert pay(NEXT) == PaidOut(payouts=1, microcredits=5)
    assert (owner.credits(), owner.waiting()) == (15, 0)


def test_a_call_that_breaks_off_between_two_payouts_is_finished_by_the_next(
    migrated: Database, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Owner(migrated, "other")
    owner.earns(10)
    other.earns(20)
    monkeypatch.setattr(payouts, "AT_ONCE", 1)
    posted: list[str] = []

    def breaks(session: object, entry: Entry) -> None:
        if posted:
            raise LedgerError("the process ends here")
        posted.append(entry.business_key)
        post(session, entry)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(payouts, "post", breaks)
        with pytest.raises(LedgerError):
            pay()
    assert sorted((owner.credits(), other.credits())) in ([0, 10], [0, 20])
    assert pay().payouts == 1
    assert (owner.credits(), other.credits()) == (10, 20)
    assert pay() == PaidOut()


def test_the_billing_account_gets_the_earnings(migrated: Database, owner: Owner) -> None:
    holding = Owner(migrated, "holding")
    with migrated.write() as session:
        session.get_one(tables.Account, owner.account_id).billing_account_id = holding.account_id
    owner.earns(10)
    pay()
    assert (owner.credits(), holding.credits()) == (0, 10)
    [row] = payouts_of(migrated)
    assert row.account_id == holding.account_id


def test_an_archived_provider_is_paid_what_it_has_earned(migrated: Database, owner: Owner) -> None:
    owner.earns(10)
    with migrated.write() as session:
        session.get_one(tables.Provider, owner.provider_id).status = "archived"
    assert pay() == PaidOut(payouts=1, microcredits=10)


def test_earnings_of_another_payment_mode_stay(owner: Owner) -> None:
    in_cash = owner.second_provider(payment_mode="stripe")
    owner.earns(10, in_cash)
    assert pay() == PaidOut()
    assert owner.waiting(in_cash) == 10
