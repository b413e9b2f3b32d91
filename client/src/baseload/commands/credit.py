"""`baseload credit`: gives an account credits, records payments for them, and lists them."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import MistakeError, Session, command
from baseload.commands.terminal import credits_text, moment_text

app = new_app()


@command(app)
def add(
    session: Session,
    amount: Annotated[str, typer.Argument(help="credits, such as 25 or 0.5")],
    to: Annotated[str | None, typer.Option(help="account id or name; default: your own")] = None,
) -> None:
    """Give an account credits; for administrators."""
    account_id = find_id(session, "accounts", to) if to else session.get("/v1/account")["id"]
    body = {"amount_microcredits": microcredits(amount)}
    given = session.post(f"/v1/accounts/{account_id}/credits", body)
    if session.screen.as_json:
        session.screen.json(given)
    else:
        session.screen.result(
            f"{given['id']}  {credits_text(body['amount_microcredits'])} credits to {account_id}"
        )


@command(app)
def record(
    session: Session,
    amount: Annotated[str, typer.Argument(help="credits, at least 25")],
    reference: Annotated[
        str, typer.Option(help="by which the payment is known, such as at a bank")
    ],
    to: Annotated[str | None, typer.Option(help="account id or name; default: your own")] = None,
) -> None:
    """Record a payment for credits, once for each reference; for administrators."""
    account_id = find_id(session, "accounts", to) if to else session.get("/v1/account")["id"]
    asked = microcredits(amount)
    body = {"amount_microcredits": asked, "reference": reference}
    bought = session.post(f"/v1/accounts/{account_id}/purchases", body)
    if session.screen.as_json:
        session.screen.json(bought)
    else:
        session.screen.result(f"{bought['id']}  {credits_text(asked)} credits to {account_id}")


@command(app)
def ls(session: Session) -> None:
    """List the credits that your account has bought or was given, newest first."""
    found = session.items("/v1/transactions", kind="credits")
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        (
            moment_text(each["at"]),
            credits_text(each["postings"][-1]["amount_microcredits"]),
            (each["details"].get("payment") or {}).get("reference", "given"),
            each["id"],
        )
        for each in found
    ]
    session.screen.table(("at", "credits", "payment", "id"), rows)


def microcredits(amount: str) -> int:
    """Credits as integer microcredits.

    Raises: MistakeError, for text that is no number, and for more than six decimals.
    """
    try:
        exact = Decimal(amount) * 1_000_000
        whole = int(exact)
    except (InvalidOperation, ValueError, OverflowError) as cause:
        raise MistakeError(f"amount: asked credits, found {amount!r}") from cause
    if whole != exact:
        raise MistakeError(f"amount: asked at most six decimals, found {amount!r}")
    return whole
