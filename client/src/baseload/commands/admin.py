"""`baseload admin`: the ledger of the whole platform, for administrators."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.session import NegativeError, Session, command
from baseload.commands.terminal import counted, credits_text, pick

app = new_app()


@command(app)
def audit(session: Session) -> None:
    """Compute every charge and balance anew, and list what differs; ends with 1 if anything does.

    It reads all of the ledger and changes nothing.
    """
    found = session.post("/v1/admin/ledger-audit")
    if session.screen.as_json:
        session.screen.json(found)
    else:
        rows = [pick(each, "name", "difference_count", "what") for each in found["checks"]]
        session.screen.table(("check", "differences", "what must be so"), rows)
        session.screen.result(
            f"{counted(found['transaction_count'], 'transaction')}, "
            f"{counted(found['posting_count'], 'posting')}, "
            f"{counted(found['ledger_account_count'], 'ledger account')}, "
            f"{counted(found['meter_count'], 'usage meter')}"
        )
    for each in found["differences"]:
        session.screen.say(
            f"{each['check']}: {each['subject']}: {each['what']}: "
            f"expected {each['expected']}, found {each['found']}"
        )
    if not found["is_clean"]:
        raise NegativeError("the ledger is not what meters, allocations and rates say")


@command(app)
def reverse(
    session: Session,
    transaction: Annotated[str, typer.Argument(help="the id, as in the statement")],
    reason: Annotated[str, typer.Option(help="what the statement will say")],
) -> None:
    """Take a transaction back by a new one with the opposite postings; once, if repeated too."""
    made = session.post(f"/v1/transactions/{transaction}/reversal", {"reason": reason})
    if session.screen.as_json:
        session.screen.json(made)
        return
    own = f"account/{made['account_id']}/credits"
    moved = sum(
        each["amount_microcredits"] for each in made["postings"] if each["ledger_account"] == own
    )
    session.screen.result(
        f"{made['id']}  {credits_text(moved)} credits to {made['account_id']}: "
        f"{made['description']}"
    )
