"""`baseload bill`: movements and balances."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.session import Document, Session, command
from baseload.commands.terminal import credits_text, moment_text, printable

app = new_app()
Day = Annotated[
    datetime | None, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="UTC")
]


@command(app)
def bill(
    session: Session,
    since: Day = None,
    until: Day = None,
    csv: Annotated[bool, typer.Option("--csv", help="for spreadsheets")] = False,
) -> None:
    """Show the statement of a period, by default the last 30 days."""
    query = {"begins_at": _instant(since), "ends_at": _instant(until)}
    if csv:
        text = session.text("/v1/statement", accept="text/csv", **query)
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        return
    found = session.get("/v1/statement", **query)
    if session.screen.as_json:
        session.screen.json(found)
        return
    rows = [_row(line) for line in found["lines"]]
    session.screen.table(("at", "kind", "credits", "balance", "description"), rows)
    period = f"{moment_text(found['begins_at'])} to {moment_text(found['ends_at'])}"
    session.screen.result(
        f"{period}: from {credits_text(found['opening_microcredits'])} "
        f"to {credits_text(found['closing_microcredits'])} credits"
    )


def _row(line: Document) -> list[str]:
    return [
        moment_text(line["at"]),
        line["kind"],
        credits_text(line["amount_microcredits"]),
        credits_text(line["balance_microcredits"]),
        line["description"],
    ]


def _instant(day: datetime | None) -> str | None:
    return None if day is None else day.replace(tzinfo=UTC).isoformat()
