"""Purchases: whoever receives the money, each payment gives its credits once, and none is small."""

import pytest
from sqlmodel import select

from activities.billing.ledger import LedgerError, balance_of
from activities.billing.payers import credits_name
from activities.billing.payments import (
    LEAST_MICROCREDITS,
    Payment,
    PaymentError,
    RecordedPayments,
    buy_credits,
)
from activities.db import tables
from activities.db.session import Database
from tests.activities.rows import NOW, add_payer


def test_a_payment_is_recorded_with_who_has_seen_it() -> None:
    payment = RecordedPayments().received("INV-7", LEAST_MICROCREDITS, "usr-1")
    assert payment == Payment("recorded", "INV-7", 25_000_000, "usr-1")


def test_payments_of_the_same_reference_elsewhere_are_other_payments(migrated: Database) -> None:
    with migrated.write() as session:
        payer = add_payer(session).id
        for method in ("recorded", "card", "recorded"):
            buy_credits(session, payer, Payment(method, "7", LEAST_MICROCREDITS), NOW)
        assert balance_of(session, credits_name(payer)) == 2 * LEAST_MICROCREDITS
        with pytest.raises(LedgerError, match="purchase/card/7"):
            buy_credits(session, payer, Payment("card", "7", LEAST_MICROCREDITS + 1), NOW)
        assert len(session.exec(select(tables.LedgerTransaction)).all()) == 2


def test_less_than_the_smallest_purchase_buys_nothing(migrated: Database) -> None:
    with migrated.write() as session:
        payer = add_payer(session).id
        with pytest.raises(PaymentError, match="at least 25000000"):
            buy_credits(session, payer, Payment("card", "7", LEAST_MICROCREDITS - 1), NOW)
        assert balance_of(session, credits_name(payer)) == 0
