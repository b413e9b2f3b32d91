"""`baseload credits`: gives an account credits."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import MistakeError, Session, command
from baseload.commands.terminal import credits_text

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
