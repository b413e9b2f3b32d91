"""Purchases: payments for credits, behind one interface whoever receives the money."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sqlmodel import Session

from activities.billing.ledger import FUNDING, Entry, post
from activities.billing.payers import credits_name
from activities.db.tables import LedgerTransaction
from workflows.contracts.billing import MICROCREDITS, TransactionKind

LEAST_MICROCREDITS = 25 * MICROCREDITS
"""The smallest purchase."""


@dataclass(frozen=True)
class Payment:
    """Money that was received for credits; 1 credit costs 1 US dollar.

    method: of the payments that received it;
    reference: by which they name the payment, each once;
    received_by: the user who says so; None: the payments themselves.
    """

    method: str
    reference: str
    amount_microcredits: int
    received_by: str | None = None


class Payments(Protocol):
    """Who receives money for credits."""

    @property
    def method(self) -> str:
        """The name of it, as ledger transactions keep it."""

    def received(self, reference: str, amount_microcredits: int, asked_by: str) -> Payment:
        """The payment of this reference and amount, once its money is there.

        asked_by: the user who asks for the credits.
        Raises: PaymentError, when there is no such payment, or its money is not there.
        """


class PaymentError(Exception):
    """Why a payment gives no credits."""


class RecordedPayments:
    """Payments that an administrator has seen elsewhere, such as at a bank, and records."""

    method = "recorded"

    def received(self, reference: str, amount_microcredits: int, asked_by: str) -> Payment:
        """The payment as it is recorded: the administrator answers for it."""
        return Payment(self.method, reference, amount_microcredits, asked_by)


def payments() -> Payments:
    """The payments of this installation."""
    return RecordedPayments()


def buy_credits(
    session: Session, payer_id: str, payment: Payment, at: datetime
) -> LedgerTransaction:
    """Post the credits of a payment, once; return the new or the earlier transaction.

    Raises: LedgerError, when the reference stands for another amount or another payer;
    PaymentError, for less than the smallest purchase.
    """
    if payment.amount_microcredits < LEAST_MICROCREDITS:
        raise PaymentError(
            f"payment {payment.reference}: asked {payment.amount_microcredits} microcredits, a "
            f"purchase is at least {LEAST_MICROCREDITS}"
        )
    amount = payment.amount_microcredits
    entry = Entry(
        business_key=f"purchase/{payment.method}/{payment.reference}",
        kind=TransactionKind.CREDITS,
        account_id=payer_id,
        legs={FUNDING: -amount, credits_name(payer_id): amount},
        at=at,
        description=f"credits bought, payment {payment.reference}",
        details={
            "payment": {
                "method": payment.method,
                "reference": payment.reference,
                "received_by": payment.received_by,
            }
        },
    )
    return post(session, entry)
